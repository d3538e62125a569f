//! The command line.
//!
//! # Layout
//! - `args`: everything that can be typed
//! - `commands`: one file per command
//! - `context`: the server and the sandbox that a command speaks of
//! - `install`: this program as a service of this machine
//! - `pack`: the files of a template's COPY steps
//! - `attach`: a process's output, input and exit code, passed through
//! - `stack`: a limit that would end this program without a word
//! - `suggest`: what was probably meant
//! - `ask`: questions to the user, and keys
//! - `terminal`, `interrupts`, `output`, `report`, `status_line`, `words`: the user's side

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use soulbox_bench::floor;
use soulbox_doctor::PROBE_COMMAND;

use crate::commands::TRIAL_COMMAND;

mod args;
mod ask;
mod attach;
mod commands;
mod context;
mod install;
mod interrupts;
mod option_names;
mod output;
mod pack;
mod report;
mod sandbox;
mod stack;
mod status_line;
mod suggest;
mod terminal;

/// How long background work may take to notice that the program ends: a blocked read of stdin
/// never does, a server's last writes should.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(100);
const SERVER_SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match stack::raise() {
        Ok(()) => run(),
        Err(error) => report::failure(&error, 1),
    }
}

/// Apart, so that nothing of it is on the stack before that is known to be large enough.
#[inline(never)]
fn run() -> ExitCode {
    // For the server alone: what it starts must not speak in its name.
    let service_manager = soulbox_sys::take_variable(soulbox_server::NOTIFY_SOCKET);
    // The doctor tries dangerous things in copies of this program, and the bench clones in one;
    // they must have one thread.
    let mut words = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    match (words.next().as_deref(), words.next()) {
        (Some(PROBE_COMMAND), Some(name)) => return soulbox_doctor::probe(&name),
        (Some(floor::COMMAND), Some(task)) => return floor::serve(&task),
        (Some(TRIAL_COMMAND), Some(dir)) => {
            return match commands::trial(dir.as_ref()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => report::failure(&error, 1),
            };
        }
        _ => {}
    }
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => args::explain(error).exit(),
    };
    let failure_code = cli.command.failure_code();
    let shutdown_limit = match cli.command {
        args::Command::Serve(_) | args::Command::BenchServer(_) | args::Command::Dns(_) => {
            SERVER_SHUTDOWN_LIMIT
        }
        _ => SHUTDOWN_LIMIT,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return report::failure(&error.into(), failure_code),
    };
    let result = runtime.block_on(commands::dispatch(cli.command, service_manager));
    runtime.shutdown_timeout(shutdown_limit);
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => report::failure(&error, failure_code),
    }
}
