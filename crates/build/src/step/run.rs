//! RUN: `[command]` or `[command, user]`.

use soulbox_guest::Error as GuestError;

use super::{Outcome, user_command};
use crate::{
    job::Job,
    journal::Journal,
    problem::{Problem, Result},
    room::{Room, broken},
    state::State,
};

pub(super) async fn run(
    job: &Job,
    room: Room,
    state: State,
    args: &[String],
    journal: &Journal,
) -> Result<Outcome> {
    let Some(command) = args.first().filter(|command| !command.is_empty()) else {
        return Err(Problem::told("RUN needs a command"));
    };
    let given = args.get(1).filter(|user| !user.is_empty());
    let user = given.unwrap_or(&state.user);
    let limit = job.shop.config.step_limit;
    let mut output = journal.output();
    let exit = room
        .guest
        .run(
            &user_command(&state, command, user),
            &mut |stream, bytes| output.add(stream, bytes),
            limit,
        )
        .await;
    drop(output);
    let failed =
        |reason: String| Problem::told(format!("failed to run command '{command}': {reason}"));
    match exit {
        Ok(exit) if exit.is_success() => Ok(Outcome {
            state,
            changed: true,
            room: Some(room),
        }),
        Ok(exit) => {
            if room.ran_out_of_memory().await {
                journal.warn(&format!(
                    "processes were killed because they needed more than {} MiB of memory: \
                     build with a higher memoryMB",
                    room.limits.memory_mib
                ));
            }
            Err(failed(exit.to_string()))
        }
        Err(error @ (GuestError::Protocol(_) | GuestError::Archive(_))) => Err(broken(error)),
        Err(error) => Err(failed(broken(error).to_string())),
    }
}
