//! COPY: `[source, destination, owner, mode]`, from uploaded files, a stage or an image.

use soulbox_envd_client::{CopyRequest, Error as EnvdError};
use soulbox_types::Limits;

use super::Outcome;
use crate::{
    Step,
    expand::expand,
    job::{Job, StageState},
    problem::{Doing, Problem, Result},
    scripts,
    state::{State, clean},
    step_log::StepLog,
    step_sandbox::{StepSandbox, envd_problem},
};

/// One stream each.
const MOST_MATCHES: usize = 500;

pub(super) async fn run(
    job: &Job,
    sandbox: StepSandbox,
    state: State,
    step: &Step,
    source: Option<&StageState>,
    step_log: &StepLog,
) -> Result<Outcome> {
    let argument = |at: usize| step.args.get(at).map_or("", String::as_str);
    let (src, dest) = (argument(0), argument(1));
    if src.is_empty() || dest.is_empty() {
        return Err(Problem::user("COPY needs a source and a destination"));
    }
    let copy = CopyRequest {
        src: src.to_owned(),
        dest: expand(dest, &state.env)?,
        owner: expand(argument(2), &state.env)?,
        mode: argument(3).to_owned(),
        workdir: match &state.workdir {
            Some(path) => path.clone(),
            None => home(&sandbox, &state.user).await?,
        },
        user: state.user.clone(),
        keep_owners: false,
    };
    let copied = tokio::time::timeout(job.context.config.step_limit, async {
        match source {
            None => from_upload(job, &sandbox, &copy, step).await,
            Some(source) => between(job, source, &sandbox, copy, step_log).await,
        }
    });
    copied.await.unwrap_or_else(|_| {
        Err(Problem::user(format!(
            "failed to move files in sandbox: it took longer than {} s",
            job.context.config.step_limit.as_secs()
        )))
    })?;
    Ok(Outcome {
        state,
        changed: true,
        sandbox: Some(sandbox),
    })
}

async fn from_upload(
    job: &Job,
    sandbox: &StepSandbox,
    copy: &CopyRequest,
    step: &Step,
) -> Result<()> {
    let Some(hash) = &step.files_hash else {
        return Err(Problem::user(
            "COPY has no files: its filesHash is missing; use a newer client",
        ));
    };
    let path = job.context.files.path(&job.request.tenant, hash);
    let path = path.ok_or_else(|| Problem::user(format!("{hash:?} is no hash of files")))?;
    // Also a use: it stays for the next build.
    let _held = job.context.leases.hold([path.clone()]);
    let file = match tokio::fs::File::open(&path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Problem::user(format!(
                "the files of '{}' were not uploaded: build again",
                copy.src
            )));
        }
        other => other.doing("open the uploaded files")?,
    };
    let touched = file.try_clone().await.doing("open the uploaded files")?;
    if let Ok(file) = touched.try_into_std() {
        let _only_lives_shorter = file.set_modified(std::time::SystemTime::now());
    }
    sandbox.envd.copy_in(copy, file).await.map_err(failed)
}

/// Streams a tar out of a sandbox of the source and into ours.
async fn between(
    job: &Job,
    source: &StageState,
    sandbox: &StepSandbox,
    copy: CopyRequest,
    step_log: &StepLog,
) -> Result<()> {
    let limits = Limits {
        // Nothing runs in it but the reading.
        cpu_millis: 1000,
        memory_mib: 256,
        ..job.request.limits
    };
    let from = StepSandbox::open(job, source, limits, step_log).await?;
    let path = clean(&copy.src);
    let (paths, into) = if path.contains(['*', '?', '[']) {
        (matches(&from, &path).await?, "/")
    } else {
        (vec![path], "")
    };
    for path in paths {
        let tree = from.envd.tree(&path).await.map_err(|error| {
            Problem::user(match error {
                EnvdError::Refused { message, .. } => {
                    format!("failed to move files in sandbox: '{path}': {message}")
                }
                other => format!("failed to move files in sandbox: {}", envd_problem(other)),
            })
        })?;
        let copy = CopyRequest {
            // The archive is what was asked for.
            src: String::new(),
            dest: format!("{}{into}", copy.dest),
            keep_owners: true,
            ..copy.clone()
        };
        let copied = sandbox.envd.copy_in(&copy, tree).await;
        copied.map_err(failed)?;
    }
    Ok(())
}

/// What a pattern means in a sandbox: its own shell knows.
async fn matches(sandbox: &StepSandbox, pattern: &str) -> Result<Vec<String>> {
    let problem = |reason: &str| {
        Problem::user(format!(
            "failed to move files in sandbox: '{pattern}': {reason}"
        ))
    };
    let ran = sandbox.script(scripts::MATCHES, &[pattern]).await?;
    let paths: Vec<_> = ran.stdout.lines().map(str::to_owned).collect();
    if paths.is_empty() {
        return Err(problem("nothing has such a name"));
    }
    if paths.len() > MOST_MATCHES {
        return Err(problem(&format!(
            "more than {MOST_MATCHES} have such a name: copy their directory"
        )));
    }
    Ok(paths)
}

async fn home(sandbox: &StepSandbox, user: &str) -> Result<String> {
    let ran = sandbox.script(scripts::HOME, &[user]).await?;
    let home = ran.stdout.trim_end_matches('\n');
    if ran.exit.is_success() && home.starts_with('/') {
        Ok(home.to_owned())
    } else {
        Ok("/".to_owned())
    }
}

fn failed(error: EnvdError) -> Problem {
    let reason = match error {
        // envd says itself what failed.
        EnvdError::Refused { message, .. } if message.starts_with("failed to ") => {
            return Problem::user(message);
        }
        EnvdError::Refused { message, .. } => message,
        EnvdError::Archive(error) => format!("the files cannot be read: {error}"),
        other => envd_problem(other).to_string(),
    };
    Problem::user(format!("failed to move files in sandbox: {reason}"))
}
