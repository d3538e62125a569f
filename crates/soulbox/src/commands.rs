//! One file per command. Each returns the exit code.

use std::ffi::OsString;

use anyhow::Result;

use crate::{args::Command, sandbox::Interrupted};

mod attach;
mod bench;
mod completions;
mod cp;
mod doctor;
mod exec;
mod forward;
mod install;
mod key;
mod kill;
mod lifetime;
mod logs;
mod ls;
mod man;
mod pause;
mod ps;
mod recover;
mod run;
mod server;
mod shell;
mod ssh;
mod start;
mod stats;
mod template;
mod timeout;
mod url;
mod version;

pub(crate) use doctor::{TRIAL_COMMAND, trial};

/// `service_manager`: where the one that started us listens.
pub(crate) async fn dispatch(command: Command, service_manager: Option<OsString>) -> Result<u8> {
    let result = match command {
        Command::Serve(args) => server::serve(*args, service_manager).await,
        Command::Dns(args) => server::dns(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Run(args) => run::run(&args).await,
        Command::Ls(args) => ls::run(&args).await,
        Command::Ps(args) => ps::run(&args).await,
        Command::Exec(args) => exec::run(&args).await,
        Command::Attach(args) => attach::run(&args).await,
        Command::Shell(args) => shell::run(&args).await,
        Command::Cp(args) => cp::run(&args).await,
        Command::Forward(args) => forward::run(&args).await,
        Command::Url(args) => url::url(&args).await,
        Command::Open(args) => url::open(&args).await,
        Command::Ssh(args) => ssh::ssh(&args).await,
        Command::SshProxy(args) => ssh::proxy(&args).await,
        Command::SshConfig(args) => ssh::config(&args).await,
        Command::Logs(args) => logs::run(&args).await,
        Command::Kill(args) => kill::run(&args).await,
        Command::Stats(args) => stats::run(&args).await,
        Command::Timeout(args) => timeout::run(&args).await,
        Command::Pause(args) => pause::pause(&args).await,
        Command::Resume(args) => pause::resume(&args).await,
        Command::Recover(args) => recover::run(&args).await,
        Command::Template { command } => template::run(&command).await,
        Command::Key { command } => key::run(&command).await,
        Command::Bench(args) => bench::run(&args).await,
        Command::BenchServer(args) => bench::serve(*args).await,
        Command::Install(args) => install::install(args).await,
        Command::Uninstall(args) => install::uninstall(args).await,
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Version(args) => version::run(&args),
    };
    match result {
        Err(error) => match error.downcast_ref::<Interrupted>() {
            Some(Interrupted(code)) => Ok(*code),
            None => Err(error),
        },
        ok => ok,
    }
}
