use std::time::{Duration, Instant};

use anyhow::Result;
use soulbox_client::{
    Envd,
    envd::process::{Command, Signal},
};

use super::start::{Started, command, hint_after, on_terminal, start, timed_out};
use crate::{
    args::ExecArgs,
    attach,
    context::Server,
    interrupts::Interrupts,
    output,
    report::{note, warning},
};

/// How long a command may take to end itself after Ctrl-C; the second Ctrl-C does not wait.
const TERMINATION_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &ExecArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let mut command = command(&args.command, args.timeout);
    command.environment = args.environment.iter().cloned().collect();
    let size = on_terminal(&mut command, &args.command)?;
    let envd = server
        .enter(&args.sandbox, args.command.user.clone())
        .await?;
    if args.detach {
        return detach(&server, &envd, &command).await;
    }
    command.stdin = size.is_none() && attach::passes_stdin(args.command.interactive);

    let mut interrupts = Interrupts::listen()?;
    let begun = tokio::select! {
        begun = start(&server, &envd, &command) => begun?,
        code = interrupts.next() => return Ok(code),
    };
    let process = match begun {
        Started::Running(process) => process,
        Started::Refused(code) => return Ok(code),
    };
    let started = Instant::now();
    let pid = process.pid();
    let passing = async {
        match size {
            Some(size) => attach::tty(&envd, process, size).await,
            None => attach::pipe(&envd, process, command.stdin).await,
        }
    };
    tokio::pin!(passing);
    let code = tokio::select! {
        result = &mut passing => {
            if let Ok(code) = result {
                hint_after(code, &command);
            }
            return timed_out(result, args.timeout, started);
        }
        code = interrupts.next() => code,
    };
    // The process outlives its watchers unless it is signalled.
    note(&format!(
        "interrupted: process {pid} is asked to end, and killed after {} s or another Ctrl-C; \
         sandbox {} goes on",
        TERMINATION_LIMIT.as_secs(),
        envd.sandbox_id()
    ));
    signal(&envd, pid, Signal::Terminate).await;
    tokio::select! {
        _ = &mut passing => {}
        _ = interrupts.next() => signal(&envd, pid, Signal::Kill).await,
        () = tokio::time::sleep(TERMINATION_LIMIT) => signal(&envd, pid, Signal::Kill).await,
    }
    Ok(code)
}

async fn detach(server: &Server, envd: &Envd, command: &Command) -> Result<u8> {
    match start(server, envd, command).await? {
        Started::Running(process) => {
            output::text(&process.pid().to_string())?;
            Ok(0)
        }
        Started::Refused(code) => Ok(code),
    }
}

async fn signal(envd: &Envd, pid: u32, signal: Signal) {
    match envd.signal(pid, signal).await {
        Err(error) if !error.is_not_found() => {
            warning(&format!("process {pid} could not be ended: {error}"));
        }
        _ => {}
    }
}
