use std::time::{Duration, Instant};

use anyhow::Result;
use soulbox_client::{
    Envd,
    envd::process::{Command, Signal},
};

use super::start::{Started, command, start, timed_out};
use crate::{
    args::ExecArgs,
    attach,
    context::Server,
    interrupts::Interrupts,
    output,
    report::{advice, warning},
    terminal,
};

/// How long a command may take to end itself after Ctrl-C; the second Ctrl-C does not wait.
const TERMINATION_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &ExecArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    if args.tty && !terminal::is_interactive() {
        let hint = "leave --tty out when input or output is piped";
        return Err(advice("--tty needs a terminal", hint));
    }
    let envd = server
        .enter(&args.sandbox, args.command.user.clone())
        .await?;
    let mut command = command(&args.command, args.timeout);
    command.environment = args.environment.iter().cloned().collect();
    if args.detach {
        return detach(&envd, &command).await;
    }
    let size = terminal::size();
    if args.tty {
        command.pty = Some(size);
        command
            .environment
            .entry("TERM".to_owned())
            .or_insert_with(terminal::kind);
    }
    command.stdin = !args.tty && attach::passes_stdin(args.command.interactive);

    let mut interrupts = Interrupts::listen()?;
    let begun = tokio::select! {
        begun = start(&envd, &command) => begun?,
        code = interrupts.next() => return Ok(code),
    };
    let process = match begun {
        Started::Running(process) => process,
        Started::Refused(code) => return Ok(code),
    };
    let started = Instant::now();
    let pid = process.pid();
    let passing = async {
        if args.tty {
            attach::tty(&envd, process, size).await
        } else {
            attach::pipe(&envd, process, command.stdin).await
        }
    };
    tokio::pin!(passing);
    let code = tokio::select! {
        result = &mut passing => return timed_out(result, args.timeout, started),
        code = interrupts.next() => code,
    };
    // The process outlives its watchers unless it is signalled.
    signal(&envd, pid, Signal::Terminate).await;
    tokio::select! {
        _ = &mut passing => {}
        _ = interrupts.next() => signal(&envd, pid, Signal::Kill).await,
        () = tokio::time::sleep(TERMINATION_LIMIT) => signal(&envd, pid, Signal::Kill).await,
    }
    Ok(code)
}

async fn detach(envd: &Envd, command: &Command) -> Result<u8> {
    match start(envd, command).await? {
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
