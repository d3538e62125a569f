use std::time::Instant;

use anyhow::Result;

use super::start::{Started, command, start, timed_out};
use crate::{
    args::RunArgs, attach, context::Server, interrupts::Interrupts, report, sandbox::OwnSandbox,
};

pub(super) async fn run(args: &RunArgs) -> Result<u8> {
    crate::sandbox::check_timeout(&args.create)?;
    let server = Server::connect(&args.server)?;
    // Before there is anything to clean up.
    let mut interrupts = Interrupts::listen()?;
    let user = args.command.user.clone();
    let sandbox = OwnSandbox::create(&server, &args.create, user, &mut interrupts).await?;

    let started = Instant::now();
    let result = tokio::select! {
        result = execute(args, &sandbox) => result,
        code = interrupts.next() => Ok(code),
    };
    if args.keep {
        report::note(&format!("sandbox {} goes on", sandbox.envd.sandbox_id()));
    } else {
        sandbox.discard().await;
    }
    timed_out(result, args.create.timeout, started)
}

async fn execute(args: &RunArgs, sandbox: &OwnSandbox) -> Result<u8> {
    let mut command = command(&args.command, args.create.timeout);
    command.stdin = attach::passes_stdin(args.command.interactive);
    match start(&sandbox.envd, &command).await? {
        Started::Running(process) => attach::pipe(&sandbox.envd, process, command.stdin).await,
        Started::Refused(code) => Ok(code),
    }
}
