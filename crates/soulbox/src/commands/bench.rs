//! `soulbox bench`: everything that is measured is in the crate of that name.

use std::path::{Path, PathBuf};

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
    writable(args.json.as_deref())?;
    writable(args.html.as_deref())?;
    if cfg!(debug_assertions) {
        warning("this build is not optimised: the figures say little; use `cargo build --release`");
    }
    // Before there is anything to clean up.
    let mut interrupts = Interrupts::listen()?;
    let mut session = Session::new(options(args)?)?;
    let shown = progress::Shown::new();
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
    tell(args, &result?).await
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
    Ok(options)
}

fn list() -> Result<u8> {
    let lines = Suite::ALL.map(|suite| format!("{:<11} {}", suite.name(), suite.about()));
    output::text(&lines.join("\n"))?;
    Ok(0)
}

/// A run of minutes must not end with a folder that is not there.
fn writable(file: Option<&Path>) -> Result<()> {
    let Some(folder) = file.and_then(Path::parent) else {
        return Ok(());
    };
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    Err(advice(
        format!("there is no folder {}", folder.display()),
        "make it first, or name another file",
    ))
}

async fn tell(args: &BenchArgs, report: &Report) -> Result<u8> {
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
