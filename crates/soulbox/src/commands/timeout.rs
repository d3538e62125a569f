use anyhow::Result;
use jiff::Timestamp;

use super::lifetime;
use crate::{args::TimeoutArgs, context::Server};

pub(super) async fn run(args: &TimeoutArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    let since = Timestamp::now();
    server.client.set_timeout(&id, args.seconds).await?;
    lifetime::print_end(&server, &id, Some(args.seconds), since).await;
    Ok(0)
}
