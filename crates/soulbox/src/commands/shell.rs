use std::collections::BTreeMap;

use anyhow::Result;
use soulbox_client::{
    Envd,
    envd::process::{Command, ProcessStream, PtySize},
};

use super::start::template_hint;
use crate::{
    args::ShellArgs,
    attach,
    context::Server,
    interrupts::Interrupts,
    report::advice,
    sandbox::{LEASE_SECONDS, Lease, OwnSandbox, check_timeout},
    terminal,
};

pub(super) async fn run(args: &ShellArgs) -> Result<u8> {
    check_timeout(&args.create)?;
    if !terminal::is_interactive() {
        let hint = "use `soulbox run` or `soulbox exec` in scripts";
        return Err(advice("a shell needs a terminal", hint));
    }
    let server = Server::connect(&args.server)?;
    let mut interrupts = Interrupts::listen()?;
    let user = args.user.clone();

    if let Some(name) = &args.sandbox {
        let envd = match server.enter(name, user).await {
            Ok(envd) => envd,
            Err(error) => {
                let hint = if args.tty {
                    template_hint(&server, name).await
                } else {
                    None
                };
                return Err(match hint {
                    Some(hint) => advice(error.to_string(), hint),
                    None => error,
                });
            }
        };
        server
            .client
            .connect(envd.sandbox_id(), LEASE_SECONDS)
            .await?;
        let _lease = Lease::hold(&server.client, envd.sandbox_id());
        return run_shell(args, &envd, &mut interrupts).await;
    }
    let sandbox = OwnSandbox::create(&server, &args.create, user, &mut interrupts).await?;
    let result = run_shell(args, &sandbox.envd, &mut interrupts).await;
    sandbox.discard().await;
    result
}

/// Ctrl-C travels as a byte in raw mode; signals are for ending us from outside.
async fn run_shell(args: &ShellArgs, envd: &Envd, interrupts: &mut Interrupts) -> Result<u8> {
    let size = terminal::size();
    let conversation = async {
        let process = open(args, envd, size).await?;
        attach::tty(envd, process, size).await
    };
    tokio::select! {
        result = conversation => result,
        code = interrupts.next() => Ok(code),
    }
}

/// bash where there is one.
async fn open(args: &ShellArgs, envd: &Envd, size: PtySize) -> Result<ProcessStream> {
    let mut environment: BTreeMap<String, String> =
        args.create.environment.iter().cloned().collect();
    environment
        .entry("TERM".to_owned())
        .or_insert_with(terminal::kind);
    let command = |program: &str, arguments: &[&str]| Command {
        program: program.to_owned(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        environment: environment.clone(),
        directory: args.workdir.clone(),
        pty: Some(size),
        ..Command::default()
    };
    match envd.start(&command("/bin/bash", &["-i", "-l"])).await {
        Err(error) if error.rpc_code() == Some("invalid_argument") => {
            Ok(envd.start(&command("/bin/sh", &["-i"])).await?)
        }
        result => Ok(result?),
    }
}
