//! WORKDIR: `[path]`.

use super::Outcome;
use crate::{
    expand::expand,
    problem::{Problem, Result},
    scripts,
    state::State,
    step_sandbox::StepSandbox,
};

pub(super) async fn run(
    sandbox: StepSandbox,
    mut state: State,
    args: &[String],
) -> Result<Outcome> {
    let Some(path) = args.first().filter(|path| !path.is_empty()) else {
        return Err(Problem::user("WORKDIR needs a path"));
    };
    let path = state.resolve(&expand(path, &state.env)?, "/");
    let failed =
        |reason: String| Problem::user(format!("failed to create workdir '{path}': {reason}"));
    if path.contains('\0') {
        return Err(failed("the path holds a NUL character".to_owned()));
    }
    let ran = sandbox
        .script(scripts::WORKDIR, &[&path, &state.user])
        .await;
    let ran = ran.map_err(|problem| match problem {
        Problem::User(reason) => failed(reason),
        internal @ Problem::Internal { .. } => internal,
    })?;
    if !ran.exit.is_success() {
        return Err(failed(ran.reason()));
    }
    state.workdir = Some(path);
    Ok(Outcome {
        state,
        changed: ran.stdout.trim() != "same",
        sandbox: Some(sandbox),
    })
}
