use anyhow::Result;

use crate::{args::AttachArgs, attach, context::Server, interrupts::unless_interrupted};

/// The process inside does not notice that somebody stops watching.
pub(super) async fn run(args: &AttachArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let envd = server.enter(&args.sandbox, None).await?;
    let mut process = envd.attach(args.pid, !args.no_replay).await?;
    let leave = format!("only the watching ends; process {} goes on", args.pid);
    unless_interrupted(attach::drain(&mut process), &leave).await?
}
