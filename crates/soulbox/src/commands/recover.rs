//! Sandboxes that cannot be used: back, out, or away.

use std::{
    fs::OpenOptions,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use anyhow::{Context, Result};
use soulbox_client::Piece;
use tokio::task::block_in_place;

use crate::{
    args::RecoverArgs,
    context::{Server, unique},
    output,
};

pub(super) async fn run(args: &RecoverArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let broken = server.client.broken().await;
    let broken = broken.map_err(|error| server.explain(error))?;
    let ids: Vec<String> = broken.into_iter().map(|each| each.id).collect();
    let id = unique(&args.sandbox, &ids)?;
    if args.discard {
        server.client.discard(id).await?;
    } else if let Some(file) = &args.export {
        export(&server, id, file).await?;
    } else {
        server.client.recover(id).await?;
    }
    output::text(&output::printable(id))?;
    Ok(0)
}

async fn export(server: &Server, id: &str, path: &Path) -> Result<()> {
    let mut disk = server.client.broken_disk(id).await?;
    let cannot = || format!("{} cannot be written", path.display());
    let open = || {
        let mut new = OpenOptions::new();
        new.write(true).create_new(true).mode(0o600).open(path)
    };
    let file = block_in_place(open).with_context(cannot)?;
    loop {
        match disk.next().await? {
            Piece::Data { start, data } => {
                block_in_place(|| file.write_all_at(&data, start)).with_context(cannot)?;
            }
            Piece::End { length } => {
                let finish = || file.set_len(length).and_then(|()| file.sync_all());
                return block_in_place(finish).with_context(cannot);
            }
        }
    }
}
