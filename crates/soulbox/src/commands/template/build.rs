//! From a Dockerfile.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result};
use soulbox_dockerfile::{Options, Plan};

use super::{
    credentials::RegistryCredentials,
    follow::OnInterrupt,
    job::{self, Job, Started},
    lines::Lines,
    prepare,
};
use crate::{
    args::BuildArgs,
    context::Server,
    interrupts::Interrupts,
    pack::{Context, Ignore},
    report::{advice, warning},
};

/// Files with more are not written by hand.
const LONGEST_FILE: u64 = 4 << 20;

pub(super) async fn run(args: &BuildArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    if let Some(name) = &args.builtin {
        return builtin(&server, args, name).await;
    }
    let file = Dockerfile::read(args)?;
    let plan = file.plan(args)?;
    for note in &plan.warnings {
        match note.line {
            Some(line) => warning(&format!("{}, line {line}: {}", file.shown, note.message)),
            None => warning(&note.message),
        }
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(&args.context)?,
    };
    let credentials = RegistryCredentials::open(&args.registry)?;
    let ignore = Ignore::load(&args.context, file.path.as_deref())?;
    let context = Context::open(&args.context, ignore)?;
    let packing = tokio::task::spawn_blocking({
        let (plan, shown) = (plan.clone(), file.shown.clone());
        move || prepare::prepare(&plan, &context, &credentials).context(shown)
    });
    let (mut start, archives) = packing.await??;
    if let Some(command) = &args.settings.start {
        start.start_cmd = Some(command.clone());
        // The file's own check was for the file's own command.
        start.ready_cmd = None;
    }
    if let Some(command) = &args.settings.ready {
        start.ready_cmd = Some(command.clone());
    }
    start.force = args.settings.no_cache;
    let lines = Lines::of(&file.shown, &file.text, &plan);
    let job = Job {
        name,
        start,
        archives,
        lines,
    };
    job::run(&server, &args.settings, job).await
}

async fn builtin(server: &Server, args: &BuildArgs, name: &str) -> Result<u8> {
    let started = Instant::now();
    let interrupts = Interrupts::listen()?;
    let requested = server
        .client
        .build_builtin(name)
        .await
        .map_err(|error| server.explain(error))?;
    let started = Started {
        requested,
        name: name.to_owned(),
        lines: Lines::default(),
        at: started,
        // Others may wait for it too.
        on_interrupt: OnInterrupt::Leave,
    };
    job::watch(server, &args.settings, &started, interrupts).await
}

struct Dockerfile {
    /// `None`: from standard input.
    path: Option<PathBuf>,
    shown: String,
    text: String,
}

impl Dockerfile {
    fn read(args: &BuildArgs) -> Result<Self> {
        if args.file.as_deref() == Some(Path::new("-")) {
            let text = bounded(std::io::stdin().lock()).context("standard input")?;
            return Ok(Self {
                path: None,
                shown: "Dockerfile".to_owned(),
                text,
            });
        }
        let path = match &args.file {
            Some(file) => file.clone(),
            None => args.context.join("Dockerfile"),
        };
        let shown = path.display().to_string();
        let file = std::fs::File::open(&path).map_err(|error| {
            let hint = "-f names the file; the last argument is the folder that it copies from";
            advice(format!("{shown}: {error}"), hint)
        })?;
        let text = bounded(file).with_context(|| shown.clone())?;
        Ok(Self {
            path: Some(path),
            shown,
            text,
        })
    }

    fn plan(&self, args: &BuildArgs) -> Result<Plan> {
        let options = Options {
            build_args: args.arguments.iter().cloned().collect(),
            target: args.target.clone(),
            ..Options::default()
        };
        soulbox_dockerfile::read(&self.text, &options).with_context(|| self.shown.clone())
    }
}

fn bounded(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(LONGEST_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// The context folder's name, as far as names of templates allow.
fn default_name(context: &Path) -> Result<String> {
    let folder = context.canonicalize()?;
    let name: String = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase()
        .chars()
        .map(|one| match one {
            'a'..='z' | '0'..='9' | '-' | '_' => one,
            _ => '-',
        })
        .collect();
    match name.trim_matches('-') {
        "" => Err(advice(
            "the template has no name",
            "give it one with -t NAME",
        )),
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lends_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("My App.v2");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(default_name(&path).unwrap(), "my-app-v2");
        assert!(default_name(Path::new("/")).is_err());
    }
}
