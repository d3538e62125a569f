//! Pausing and resuming.

use anyhow::Result;
use jiff::Timestamp;
use soulbox_client::model::SandboxDetail;

use super::lifetime;
use crate::{
    args::{PauseArgs, ResumeArgs},
    context::Server,
    output, report,
};

pub(super) async fn pause(args: &PauseArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    each(&server, &args.sandboxes, async |sandbox| {
        // Asking again for what is done is no mistake.
        if sandbox.listed.state != "paused" {
            server.client.pause(&sandbox.listed.id).await?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn resume(args: &ResumeArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    each(&server, &args.sandboxes, async |sandbox| {
        let id = &sandbox.listed.id;
        let since = Timestamp::now();
        server.client.connect(id, args.timeout).await?;
        // Of one that runs already the end may stay where it was.
        lifetime::print_end(&server, id, None, since).await;
        Ok(())
    })
    .await
}

/// One that fails does not keep the others from it.
async fn each(
    server: &Server,
    names: &[String],
    work: impl AsyncFn(&SandboxDetail) -> Result<()>,
) -> Result<u8> {
    let mut failed = false;
    for name in names {
        let done = async {
            let sandbox = server.find(name).await?;
            work(&sandbox).await?;
            Ok(sandbox.listed.id)
        };
        match done.await {
            Ok(id) => output::text(&output::printable(&id))?,
            Err(error) => {
                let error: anyhow::Error = error;
                report::print(&error.context(format!("sandbox {name}")));
                failed = true;
            }
        }
    }
    Ok(u8::from(failed))
}
