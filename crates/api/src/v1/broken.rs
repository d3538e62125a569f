//! Sandboxes that cannot be used: SoulBox's own routes below `/v1/broken`.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{StatusCode, header};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use serde::Serialize;
use soulbox_control::BrokenSandbox;

use crate::{
    e2b::sandboxes::detail::Listed,
    router::App,
    shared::{auth::Caller, error::Result, path::SandboxPath, wire::timestamp},
};

const READ_CHUNK: u64 = 1 << 20;
const HEAD: usize = 16;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "templateID")]
    template_id: String,
    reason: String,
    found_at: String,
    disk_bytes: u64,
    remedy: &'static str,
    metadata: BTreeMap<String, String>,
}

impl From<BrokenSandbox> for Shown {
    fn from(each: BrokenSandbox) -> Self {
        Self {
            remedy: each.remedy(),
            sandbox_id: each.broken.id.into(),
            template_id: each.template,
            reason: each.broken.reason,
            found_at: timestamp(each.broken.at),
            disk_bytes: each.broken.disk_bytes,
            metadata: each.metadata,
        }
    }
}

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Vec<Shown>>> {
    let broken = app.control.broken(&caller.tenant).await?;
    Ok(Json(broken.into_iter().map(Shown::from).collect()))
}

pub(crate) async fn recover(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<Json<Listed>> {
    let sandbox = app.control.recover(&caller.tenant, &id).await?;
    Ok(Json(sandbox.into()))
}

/// The image as it is: nobody here looks into it. Disks are mostly holes, so it comes in pieces: where
/// one begins and how long it is (8 bytes each, big endian), then its data. The last one has no data and
/// begins where the disk ends.
pub(crate) async fn disk(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<Response> {
    let disk = app.control.broken_disk(&caller.tenant, &id).await?;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, Body::from_stream(pieces(disk))).into_response())
}

/// Takes a thread only for as long as it reads: a client takes its time.
fn pieces(disk: File) -> impl Stream<Item = io::Result<Bytes>> {
    let disk = Arc::new(disk);
    stream::try_unfold(Some(0), move |at| {
        let disk = Arc::clone(&disk);
        async move {
            let Some(at) = at else { return Ok(None) };
            let read = tokio::task::spawn_blocking(move || next_piece(&disk, at));
            read.await.map_err(io::Error::other)?.map(Some)
        }
    })
}

/// The first piece from here on, and where to look for the one after it.
fn next_piece(disk: &File, at: u64) -> io::Result<(Bytes, Option<u64>)> {
    let size = disk.metadata()?.len();
    let start = match seek(disk, SeekFrom::Data(at)) {
        Ok(start) if start < size => start,
        // Only holes are left.
        Ok(_) | Err(Errno::NXIO) => return Ok((head(size, 0).into(), None)),
        Err(error) => return Err(error.into()),
    };
    let end = seek(disk, SeekFrom::Hole(start))?.min(start + READ_CHUNK);
    let length = usize::try_from(end - start).map_err(io::Error::other)?;
    let mut piece = head(start, end - start);
    piece.resize(HEAD + length, 0);
    disk.read_exact_at(&mut piece[HEAD..], start)?;
    Ok((piece.into(), Some(end)))
}

fn head(start: u64, length: u64) -> Vec<u8> {
    [start.to_be_bytes(), length.to_be_bytes()].concat()
}

pub(crate) async fn discard(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<StatusCode> {
    app.control.discard(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    /// More than one piece, and a hole.
    fn disk(fill: u8) -> File {
        let disk = tempfile::tempfile().unwrap();
        let data = vec![fill; usize::try_from(READ_CHUNK).unwrap() + 5];
        disk.write_all_at(&data, 0).unwrap();
        disk.set_len(64 << 20).unwrap();
        disk
    }

    #[test]
    fn clients_who_take_their_time_keep_no_thread_from_others() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut slow = Vec::new();
            for _ in 0..3 {
                let mut each = Box::pin(pieces(disk(1)));
                each.next().await.unwrap().unwrap();
                slow.push(each);
            }
            let all = pieces(disk(2)).collect::<Vec<_>>();
            let all = tokio::time::timeout(std::time::Duration::from_secs(20), all).await;
            let all: Vec<Bytes> = all.unwrap().into_iter().map(io::Result::unwrap).collect();
            let bytes: usize = all.iter().map(|piece| piece.len() - HEAD).sum();
            let data = usize::try_from(READ_CHUNK).unwrap() + 5;
            // As blocks of the file system have it; holes are not sent.
            assert!((data..data + (64 << 10)).contains(&bytes), "{bytes}");
            assert_eq!(*all.last().unwrap(), head(64 << 20, 0));
        });
    }
}
