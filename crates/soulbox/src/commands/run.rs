use std::time::Instant;

use anyhow::Result;
use soulbox_client::envd::process::{Command, PtySize};

use super::start::{Started, command, hint_after, on_terminal, start, template_hint, timed_out};
use crate::{
    args::RunArgs,
    attach,
    context::Server,
    interrupts::Interrupts,
    report::{self, Advice, advice},
    sandbox::OwnSandbox,
};

pub(super) async fn run(args: &RunArgs) -> Result<u8> {
    crate::sandbox::check_timeout(&args.create)?;
    let server = Server::connect(&args.server)?;
    let mut command = command(&args.command, args.create.timeout);
    let size = match on_terminal(&mut command, &args.command) {
        Ok(size) => size,
        Err(error) => return Err(or_a_template(&server, &command, error).await),
    };
    command.stdin = size.is_none() && attach::passes_stdin(args.command.interactive);
    // Before there is anything to clean up.
    let mut interrupts = Interrupts::listen()?;
    let user = args.command.user.clone();
    let sandbox = OwnSandbox::create(&server, &args.create, user, &mut interrupts).await?;

    let started = Instant::now();
    let id = sandbox.envd.sandbox_id().to_owned();
    let result = tokio::select! {
        result = execute(&server, &command, size, &sandbox) => result,
        code = interrupts.next() => {
            report::note(&if args.keep {
                format!("interrupted: the command goes on in sandbox {id}")
            } else {
                format!("interrupted: ending sandbox {id} with everything in it")
            });
            Ok(code)
        }
    };
    if args.keep {
        report::note(&format!("sandbox {id} goes on"));
    } else {
        sandbox.discard().await;
    }
    if let Ok(code) = result {
        hint_after(code, &command);
    }
    timed_out(result, args.create.timeout, started)
}

async fn execute(
    server: &Server,
    command: &Command,
    size: Option<PtySize>,
    sandbox: &OwnSandbox,
) -> Result<u8> {
    let envd = &sandbox.envd;
    match (start(server, envd, command).await?, size) {
        (Started::Running(process), Some(size)) => attach::tty(envd, process, size).await,
        (Started::Running(process), None) => attach::pipe(envd, process, command.stdin).await,
        (Started::Refused(code), _) => Ok(code),
    }
}

/// In a script, `run -t NAME` chose a template before.
async fn or_a_template(server: &Server, command: &Command, error: anyhow::Error) -> anyhow::Error {
    let hint = template_hint(server, &command.program).await;
    match (hint, error.downcast_ref::<Advice>()) {
        (Some(hint), Some(told)) => advice(told.message.clone(), hint),
        _ => error,
    }
}
