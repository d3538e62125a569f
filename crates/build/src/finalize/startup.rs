//! The start command and the ready command, tried in a sandbox of the finished template.

use std::time::Duration;

use soulbox_envd_client::{Error as EnvdError, ProcessExit};
use soulbox_types::StartCommand;
use tokio::time::{Instant, sleep};

use crate::{
    job::{Job, StageState},
    problem::{Problem, Result},
    state::State,
    step::user_command,
    step_log::StepLog,
    step_sandbox::{StepSandbox, envd_problem},
};

const READY_LIMIT: Duration = Duration::from_mins(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn check(
    job: &Job,
    stage_state: &StageState,
    command: &StartCommand,
    step_log: &StepLog,
) -> Result<()> {
    let sandbox = StepSandbox::open(job, stage_state, job.request.limits, step_log).await?;
    let state = &stage_state.state;
    let ready = wait_until_ready(&sandbox, state, &command.ready, step_log);
    if command.start.is_empty() {
        step_log.info(&format!("ready command: {}", command.ready));
        return ready.await;
    }
    step_log.info(&format!("start command: {}", command.start));
    step_log.info(&format!("ready command: {}", command.ready));
    let started = start(&sandbox, state, &command.start, step_log);
    tokio::pin!(ready, started);
    tokio::select! {
        // A start command that has failed and a ready command that succeeds anyway: failed.
        biased;
        ended = &mut started => {
            ended?;
            ready.await
        }
        ready = &mut ready => ready,
    }
}

/// Returns when it has ended well; what runs on ends with the sandbox.
async fn start(
    sandbox: &StepSandbox,
    state: &State,
    command: &str,
    step_log: &StepLog,
) -> Result<()> {
    let mut output = step_log.output();
    let ran = sandbox
        .envd
        .run(
            &user_command(state, command, &state.user),
            &mut |stream, bytes| output.add(stream, bytes),
            READY_LIMIT + LONGEST_PAUSE,
        )
        .await;
    let failed = |reason: String| {
        Problem::user(format!(
            "start command failed: error running start command: {reason}"
        ))
    };
    match ran {
        Ok(exit) if exit.is_success() => Ok(()),
        Ok(exit) => {
            if sandbox.ran_out_of_memory().await {
                let most = sandbox.limits.memory_mib;
                step_log.warn(&format!(
                    "the start command needs more than {most} MiB of memory"
                ));
            }
            Err(failed(exit.to_string()))
        }
        Err(EnvdError::TooSlow { .. }) => Ok(()),
        Err(error) => Err(failed(envd_problem(error).to_string())),
    }
}

async fn wait_until_ready(
    sandbox: &StepSandbox,
    state: &State,
    command: &str,
    step_log: &StepLog,
) -> Result<()> {
    let command = user_command(state, command, &state.user);
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = String::from("it was never tried");
    let failed = |reason: String| Problem::user(format!("ready command failed: {reason}"));
    while let Some(left) = READY_LIMIT
        .checked_sub(start.elapsed())
        .filter(|left| !left.is_zero())
    {
        let mut tail = Tail::default();
        let ran = sandbox
            .envd
            .run(&command, &mut |_, bytes| tail.add(bytes), left)
            .await;
        match ran {
            Ok(ProcessExit::Code(0)) => {
                let seconds = start.elapsed().as_secs_f64();
                step_log.info(&format!("ready after {seconds:.1} s"));
                return Ok(());
            }
            Ok(exit) => last = format!("{exit}, {:?}", tail.text()),
            Err(EnvdError::TooSlow { .. }) => break,
            Err(error) => return Err(failed(envd_problem(error).to_string())),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Err(failed(format!(
        "not ready after {} minutes (last: {last})",
        READY_LIMIT.as_secs() / 60
    )))
}

/// The end of what a command printed.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    const LENGTH: usize = 500;

    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let extra = self.0.len().saturating_sub(Self::LENGTH);
        self.0.drain(..extra);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim().to_owned()
    }
}
