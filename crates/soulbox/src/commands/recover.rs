//! Recovers, exports or discards broken sandboxes.

use std::{
    fs::OpenOptions,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result};
use soulbox_client::DiskChunk;
use tokio::task::spawn_blocking;

use crate::{
    args::RecoverArgs,
    context::{Server, unique},
    output,
    report::advice,
};

pub(super) async fn run(args: &RecoverArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let broken = server.client.broken().await;
    let broken = broken.map_err(|error| server.explain(error))?;
    let ids: Vec<String> = broken.into_iter().map(|each| each.id).collect();
    if !ids.iter().any(|id| id.starts_with(&args.sandbox)) {
        let message = format!("no broken sandbox's id begins with {}", args.sandbox);
        let hint = "`soulbox ls --broken` shows the broken ones, `soulbox ls` those that are well";
        return Err(advice(message, hint));
    }
    let id = unique("broken sandbox", "soulbox ls --broken", &args.sandbox, &ids)?;
    if args.discard {
        server.client.discard(id).await?;
    } else if let Some(file) = &args.export {
        export(&server, id, file).await?;
        eprintln!(
            "what it wrote itself is in {}; what a fork or a sandbox from a snapshot began with is \
             in that snapshot",
            file.display()
        );
    } else {
        server.client.recover(id).await?;
    }
    output::text(&output::printable(id))?;
    Ok(0)
}

async fn export(server: &Server, id: &str, path: &Path) -> Result<()> {
    let mut disk = server.client.broken_disk(id).await?;
    let cannot = || format!("{} cannot be written", path.display());
    let new = path.to_owned();
    let open = move || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(new)
    };
    let file = Arc::new(spawn_blocking(open).await?.with_context(cannot)?);
    loop {
        let file = Arc::clone(&file);
        match disk.next().await? {
            DiskChunk::Data { start, data } => {
                let write = move || file.write_all_at(&data, start);
                spawn_blocking(write).await?.with_context(cannot)?;
            }
            DiskChunk::End { length } => {
                let finish = move || file.set_len(length).and_then(|()| file.sync_all());
                return spawn_blocking(finish).await?.with_context(cannot);
            }
        }
    }
}
