use anyhow::Result;

use crate::{args::AttachArgs, attach, context::Server};

/// Ctrl-C ends this program in the ordinary way: the process inside does not notice.
pub(super) async fn run(args: &AttachArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let envd = server.enter(&args.sandbox, None).await?;
    let mut process = envd.attach(args.pid, !args.no_replay).await?;
    attach::drain(&mut process).await
}
