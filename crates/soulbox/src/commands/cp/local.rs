//! The local side of a copy.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
};

use super::{
    SourceInfo, archive,
    chunk_stream::{CHUNK, ChunkStream, Sink},
    target::{last_name, means_contents, says_folder},
};

pub(super) fn source_info(path: &Path) -> Result<SourceInfo> {
    let metadata = path
        .metadata()
        .with_context(|| path.display().to_string())?;
    let name = last_name(path).or_else(|| last_name(&path.canonicalize().ok()?));
    Ok(SourceInfo {
        is_directory: metadata.is_dir(),
        contents: means_contents(path),
        name,
        mode: Some(metadata.permissions().mode() & 0o777),
    })
}

pub(super) fn read(path: PathBuf) -> ChunkStream {
    ChunkStream::spawn(|sink| async move {
        let shown = path.display().to_string();
        let file = File::open(&path).await.with_context(|| shown.clone())?;
        copy_into(file, &sink).await.context(shown)
    })
}

pub(super) fn standard_input() -> ChunkStream {
    ChunkStream::spawn(|sink| async move {
        copy_into(tokio::io::stdin(), &sink)
            .await
            .context("standard input")
    })
}

async fn copy_into(mut from: impl AsyncRead + Unpin, sink: &Sink) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = from.read(&mut buffer).await?;
        let chunk = Bytes::copy_from_slice(&buffer[..length]);
        if length == 0 || sink.send(Ok(chunk)).await.is_err() {
            return Ok(());
        }
    }
}

pub(super) async fn standard_output(chunk_stream: ChunkStream) -> Result<()> {
    fill(tokio::io::stdout(), chunk_stream).await
}

pub(super) async fn take(
    path: &Path,
    source_info: &SourceInfo,
    chunk_stream: ChunkStream,
) -> Result<()> {
    let is_folder = path.is_dir();
    let own_name = is_folder || says_folder(&path.to_string_lossy());
    let target = match &source_info.name {
        Some(name) if own_name && !source_info.contents => path.join(name),
        _ => path.to_owned(),
    };
    if source_info.is_directory {
        return archive::unpack(target, chunk_stream).await;
    }
    let is_new = !target.exists();
    let shown = || target.display().to_string();
    let file = match File::create(&target).await.with_context(shown) {
        Ok(file) => file,
        Err(error) => return chunk_stream.settle(Err(error)).await,
    };
    fill(file, chunk_stream).await.with_context(shown)?;
    if let (true, Some(mode)) = (is_new, source_info.mode) {
        let permissions = std::fs::Permissions::from_mode(mode);
        tokio::fs::set_permissions(&target, permissions)
            .await
            .with_context(shown)?;
    }
    Ok(())
}

async fn fill(mut to: impl AsyncWrite + Unpin, mut chunk_stream: ChunkStream) -> Result<()> {
    let filled = async {
        while let Some(chunk) = chunk_stream.next().await? {
            to.write_all(&chunk).await?;
        }
        to.flush().await?;
        Ok(())
    };
    let result = filled.await;
    chunk_stream.settle(result).await
}
