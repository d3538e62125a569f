//! One file per command. Each returns the exit code.

use std::ffi::OsString;

use anyhow::Result;

use crate::{args::Command, output, report, sandbox::Interrupted};

mod attach;
mod backup;
mod bench;
mod completions;
mod cp;
mod create;
mod disk;
mod doctor;
mod events;
mod exec;
mod fork;
mod forward;
mod inspect;
mod install;
mod key;
mod kill;
mod lifetime;
mod login;
mod logs;
mod ls;
mod man;
mod pause;
mod ps;
mod recover;
mod run;
mod secret;
mod server;
mod shell;
mod snapshot;
mod ssh;
mod start;
mod stats;
mod template;
mod timeout;
mod top;
mod trust;
mod url;
mod version;
mod volume;
mod wait;

pub(crate) use doctor::{TRIAL_COMMAND, trial};

/// Does it to each, and prints what it was done to. One that fails does not keep the others from it.
async fn each(
    kind: &str,
    names: &[String],
    work: impl AsyncFn(&str) -> Result<String>,
) -> Result<u8> {
    let mut failed = false;
    for name in names {
        match work(name).await {
            Ok(done) => output::text(&output::printable(&done))?,
            Err(error) => {
                report::print(&error.context(format!("{kind} {name}")));
                failed = true;
            }
        }
    }
    Ok(u8::from(failed))
}

/// `service_manager`: where the one that started us listens.
pub(crate) async fn dispatch(command: Command, service_manager: Option<OsString>) -> Result<u8> {
    let result = match command {
        Command::Serve(args) => server::serve(*args, service_manager).await,
        Command::Dns(args) => server::dns(args).await,
        Command::Trust(args) => trust::run(args).await,
        Command::Login(args) => login::login(&args).await,
        Command::Logout(args) => login::logout(&args),
        Command::Context { command } => login::context(&command),
        Command::Doctor(args) => doctor::run(args).await,
        Command::Run(args) => run::run(&args).await,
        Command::Create(args) => create::run(&args).await,
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
        Command::Inspect(args) => inspect::run(&args).await,
        Command::Events(args) => events::run(&args).await,
        Command::Wait(args) => wait::run(&args).await,
        Command::Top(args) => top::run(&args).await,
        Command::Kill(args) => kill::run(&args).await,
        Command::Stats(args) => stats::run(&args).await,
        Command::Timeout(args) => timeout::run(&args).await,
        Command::Pause(args) => pause::pause(&args).await,
        Command::Resume(args) => pause::resume(&args).await,
        Command::Recover(args) => recover::run(&args).await,
        Command::Fork(args) => fork::run(&args).await,
        Command::Snapshot { command } => snapshot::run(&command).await,
        Command::Volume { command } => volume::run(&command).await,
        Command::Df(args) => disk::df(&args).await,
        Command::Prune(args) => disk::prune(&args).await,
        Command::Secret { command } => secret::run(&command).await,
        Command::Template { command } => template::run(&command).await,
        Command::Key { command } => key::run(&command).await,
        Command::Backup(args) => backup::back_up(args).await,
        Command::Restore(args) => backup::restore(args).await,
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
