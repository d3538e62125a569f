//! `soulbox bench`: everything that is measured is in the crate of that name.

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use soulbox_bench::{
    Options, Progress, ServerChoice, Session, Suite,
    report::{self, Report},
};

use crate::{
    args::BenchArgs,
    context::Server,
    interrupts::Interrupts,
    output,
    report::{advice, warning},
    sandbox::Interrupted,
};

mod progress;
mod server;

pub(super) use server::serve;

pub(super) async fn run(args: &BenchArgs) -> Result<u8> {
    if args.list {
        return list();
    }
    permitted(args)?;
    writable(args.json.as_deref())?;
    writable(args.html.as_deref())?;
    if cfg!(debug_assertions) {
        warning("this build is not optimised: the figures say little; use `cargo build --release`");
    }
    // Before there is anything to clean up.
    let mut interrupts = Interrupts::listen()?;
    let mut session = Session::new(options(args)?)?;
    let shown = progress::ProgressPrinter::new();
    let result = tokio::select! {
        result = session.measure(&shown) => result.map_err(anyhow::Error::from),
        code = interrupts.next() => Err(Interrupted(code).into()),
    };
    shown.note("ending what was started");
    // A second Ctrl-C leaves at once; servers of our own then end by themselves.
    tokio::select! {
        () = session.close(&shown) => {}
        code = interrupts.next() => return Err(Interrupted(code).into()),
    }
    shown.clear();
    print_report(args, &result?).await
}

fn options(args: &BenchArgs) -> Result<Options> {
    let server = if args.is_elsewhere() {
        ServerChoice::Running(Box::new(Server::connect(&args.server)?.client))
    } else {
        ServerChoice::Own {
            program: std::env::current_exe().context("cannot find this program's file")?,
            scratch: args.scratch.clone(),
            arguments: args.serve.clone(),
        }
    };
    let mut options = if args.quick {
        Options::quick(server)
    } else {
        Options::full(server)
    };
    args.apply(&mut options);
    options.command = typed(std::env::args());
    options.commit = Some(env!("SOULBOX_COMMIT")).filter(|commit| !commit.is_empty());
    Ok(options)
}

/// The command line, for who wants to repeat the run; a key is nobody's business.
fn typed(words: impl Iterator<Item = String>) -> String {
    const KEY: &str = "--api-key";
    let mut shown = vec!["soulbox".to_owned()];
    let mut is_key = false;
    for word in words.skip(1) {
        shown.push(if is_key {
            "…".to_owned()
        } else if word.starts_with(&format!("{KEY}=")) {
            format!("{KEY}=…")
        } else {
            word.clone()
        });
        is_key = word == KEY;
    }
    shown.join(" ")
}

fn list() -> Result<u8> {
    let lines = Suite::ALL.map(|suite| format!("{:<11} {}", suite.name(), suite.about()));
    output::text(&lines.join("\n"))?;
    Ok(0)
}

/// Servers are started by root only; one that runs may be measured by everybody.
fn permitted(args: &BenchArgs) -> Result<()> {
    if args.is_elsewhere() || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(advice(
        "the bench starts servers of its own, which needs root",
        "run `sudo soulbox bench`, or measure a server that runs with --running",
    ))
}

/// A run of minutes must not end with a file that cannot be written.
fn writable(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else {
        return Ok(());
    };
    let mut open = OpenOptions::new();
    let tried = match open.append(true).create_new(true).open(file) {
        // It was not there, and is not to be before there is something in it.
        Ok(_) => std::fs::remove_file(file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open.create_new(false).open(file).map(drop)
        }
        Err(error) => Err(error),
    };
    tried.map_err(|error| {
        advice(
            format!("cannot write {}: {error}", file.display()),
            "name a file in a folder that is there and can be written to",
        )
    })
}

async fn print_report(args: &BenchArgs, report: &Report) -> Result<u8> {
    output::text(report::table(report).trim_end())?;
    if let Some(file) = &args.json {
        write(file, serde_json::to_string_pretty(report)? + "\n").await?;
    }
    if let Some(file) = &args.html {
        write(file, report::html(report)).await?;
    }
    let broken = report
        .verdicts
        .iter()
        .any(|verdict| verdict.kept == Some(false));
    Ok(u8::from(args.check && broken))
}

async fn write(file: &PathBuf, text: String) -> Result<()> {
    tokio::fs::write(file, text)
        .await
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_none_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new.json");
        writable(Some(&new)).unwrap();
        assert!(!new.exists());
        let old = folder.path().join("old.json");
        std::fs::write(&old, "kept").unwrap();
        writable(Some(&old)).unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "kept");
        for bad in [folder.path().to_owned(), old.join("x"), new.join("x")] {
            let error = writable(Some(&bad)).unwrap_err().to_string();
            assert!(error.starts_with("cannot write "), "{error}");
        }
        writable(None).unwrap();
    }

    #[test]
    fn a_report_has_the_command_line_without_the_key() {
        let shown = |line: &str| typed(line.split(' ').map(str::to_owned));
        assert_eq!(
            shown("/opt/soulbox bench exec --api-key e2b_secret --quick"),
            "soulbox bench exec --api-key … --quick"
        );
        assert_eq!(
            shown("soulbox bench --api-key=e2b_secret"),
            "soulbox bench --api-key=…"
        );
    }
}
