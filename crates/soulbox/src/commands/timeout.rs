use anyhow::Result;

use crate::{args::TimeoutArgs, context::Server};

pub(super) async fn run(args: &TimeoutArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    server.client.set_timeout(&id, args.seconds).await?;
    Ok(0)
}
