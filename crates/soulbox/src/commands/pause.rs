//! Pausing and resuming.

use anyhow::Result;
use jiff::Timestamp;

use super::{each, lifetime};
use crate::{
    args::{PauseArgs, ResumeArgs},
    context::Server,
    interrupts::unless_interrupted,
};

const LEAVE: &str = "the server goes on with what it has begun; `soulbox ls` shows the state";

pub(super) async fn pause(args: &PauseArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let pausing = each("sandbox", &args.sandboxes, async |name| {
        let sandbox = server.find(name).await?;
        // Asking again for what is done is no mistake.
        if sandbox.listed.state != "paused" {
            server.client.pause(&sandbox.listed.id).await?;
        }
        Ok(sandbox.listed.id)
    });
    unless_interrupted(pausing, LEAVE).await?
}

pub(super) async fn resume(args: &ResumeArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let resuming = each("sandbox", &args.sandboxes, async |name| {
        let id = server.find(name).await?.listed.id;
        let since = Timestamp::now();
        server.client.connect(&id, args.timeout).await?;
        // Of one that runs already the end may stay where it was.
        lifetime::print_end(&server, &id, None, since).await;
        Ok(id)
    });
    unless_interrupted(resuming, LEAVE).await?
}
