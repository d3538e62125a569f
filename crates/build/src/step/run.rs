//! RUN: `[command]` or `[command, user]`.

use soulbox_envd_client::Error as EnvdError;

use super::{Outcome, user_command};
use crate::{
    job::Job,
    problem::{Problem, Result},
    state::State,
    step_log::StepLog,
    step_sandbox::{StepSandbox, envd_problem},
};

pub(super) async fn run(
    job: &Job,
    sandbox: StepSandbox,
    state: State,
    args: &[String],
    step_log: &StepLog,
) -> Result<Outcome> {
    let Some(command) = args.first().filter(|command| !command.is_empty()) else {
        return Err(Problem::user("RUN needs a command"));
    };
    let given = args.get(1).filter(|user| !user.is_empty());
    let user = given.unwrap_or(&state.user);
    let limit = job.context.config.step_limit;
    let mut output = step_log.output();
    let exit = sandbox
        .envd
        .run(
            &user_command(&state, command, user),
            &mut |stream, bytes| output.add(stream, bytes),
            limit,
        )
        .await;
    drop(output);
    let failed =
        |reason: String| Problem::user(format!("failed to run command '{command}': {reason}"));
    match exit {
        Ok(exit) if exit.is_success() => Ok(Outcome {
            state,
            changed: true,
            sandbox: Some(sandbox),
        }),
        Ok(exit) => {
            if sandbox.ran_out_of_memory().await {
                step_log.warn(&format!(
                    "processes were killed because they needed more than {} MiB of memory: \
                     build with a higher memoryMB",
                    sandbox.limits.memory_mib
                ));
            }
            Err(failed(exit.to_string()))
        }
        Err(error @ (EnvdError::Protocol(_) | EnvdError::Archive(_))) => Err(envd_problem(error)),
        Err(error) => Err(failed(envd_problem(error).to_string())),
    }
}
