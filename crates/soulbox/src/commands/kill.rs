use anyhow::Result;
use futures_util::{StreamExt, stream};
use soulbox_client::config::data_dir;
use soulbox_server::OfflineFolder;

use crate::{
    args::KillArgs,
    context::{Server, flags, variable},
    interrupts::unless_interrupted,
    output,
    report::{self, warning},
};

const AT_ONCE: usize = 8;

pub(super) async fn run(args: &KillArgs) -> Result<u8> {
    if args.offline {
        return end_all_offline(args).await;
    }
    let server = Server::connect(&args.server)?;
    let mut failed = false;
    let mut ids = Vec::new();
    if args.all {
        ids = server.ids().await?;
    }
    for name in &args.sandboxes {
        match server.find(name).await {
            Ok(detail) => ids.push(detail.listed.id),
            Err(error) => {
                report::print(&error);
                failed = true;
            }
        }
    }
    let kill = |id: String| async {
        let result = server.client.kill(&id).await;
        (id, result)
    };
    let killing = async {
        let mut killed = stream::iter(ids.into_iter().map(kill)).buffered(AT_ONCE);
        while let Some((id, result)) = killed.next().await {
            match result {
                Ok(true) => output::text(&output::printable(&id))?,
                Ok(false) => warning(&format!("sandbox {id} had ended")),
                Err(error) => {
                    report::print(&anyhow::Error::from(error).context(format!("sandbox {id}")));
                    failed = true;
                }
            }
        }
        Ok(u8::from(failed))
    };
    let leave = "those that are printed have ended, and the server goes on with up to 8 others";
    unless_interrupted(killing, leave).await?
}

/// Without a server nobody ends them at their deadline.
async fn end_all_offline(args: &KillArgs) -> Result<u8> {
    let folder = data_dir(&flags(&args.server), variable);
    if let Some(folder) = OfflineFolder::open(&folder)? {
        folder.end_sandboxes().await?;
    }
    Ok(0)
}
