//! Sandboxes that cannot be used: back, out, or away.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result, bail};
use tokio::task::block_in_place;

use crate::{
    args::RecoverArgs,
    context::{Server, unique},
    output,
};

/// What is zero for so long is not written: disks are mostly holes.
const BLOCK: usize = 4096;

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
    let mut file = block_in_place(open).with_context(cannot)?;
    let mut length = 0;
    while let Some(piece) = disk.next().await? {
        block_in_place(|| write_sparse(&mut file, &piece)).with_context(cannot)?;
        length += piece.len() as u64;
    }
    if length != disk.length {
        bail!(
            "the server sent {length} of {} bytes: try again",
            disk.length
        );
    }
    let finish = || file.set_len(length).and_then(|()| file.sync_all());
    block_in_place(finish).with_context(cannot)
}

fn write_sparse(file: &mut File, piece: &[u8]) -> io::Result<()> {
    for block in piece.chunks(BLOCK) {
        if block.iter().all(|byte| *byte == 0) {
            file.seek(SeekFrom::Current(
                i64::try_from(block.len()).map_err(io::Error::other)?,
            ))?;
        } else {
            file.write_all(block)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn holes_stay_holes_and_data_stays_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let mut whole = vec![0; 8 << 20];
        whole[5_000_000] = 7;
        let mut file = File::create(&path).unwrap();
        for piece in whole.chunks(100_000) {
            write_sparse(&mut file, piece).unwrap();
        }
        file.set_len(whole.len() as u64).unwrap();
        assert!(std::fs::read(&path).unwrap() == whole);
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
    }
}
