//! Folders on this machine, packed and unpacked. What is unpacked was packed inside a sandbox:
//! nothing in it may reach outside the target folder.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use tar::{Archive, Builder, EntryType};
use tokio::sync::mpsc;

use super::chunk_stream::{CHUNK, ChunkStream, Sink};
use crate::report::warning;

pub(super) fn pack(folder: PathBuf) -> ChunkStream {
    ChunkStream::spawn_blocking(move |sink| {
        let out = io::BufWriter::with_capacity(CHUNK, SinkWriter { sink });
        let mut builder = Builder::new(out);
        builder.follow_symlinks(false);
        let packed = builder
            .append_dir_all(".", &folder)
            .and_then(|()| builder.into_inner()?.flush());
        match packed {
            // The sink has gone and has its own error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.with_context(|| folder.display().to_string()),
        }
    })
}

pub(super) async fn unpack(folder: PathBuf, mut chunk_stream: ChunkStream) -> Result<()> {
    let (sender, receiver) = mpsc::channel(2);
    let unpacking = tokio::task::spawn_blocking(move || {
        unpack_into(
            &folder,
            SinkReader {
                receiver,
                current: Bytes::new(),
            },
        )
    });
    let mut passed = Ok(());
    loop {
        let chunk = match chunk_stream.next().await {
            Ok(Some(chunk)) => Ok(chunk),
            Ok(None) => break,
            Err(error) => {
                passed = Err(anyhow::Error::from(io::Error::new(
                    error.kind(),
                    error.to_string(),
                )));
                Err(error)
            }
        };
        if sender.send(chunk).await.is_err() {
            break;
        }
    }
    drop(sender);
    let unpacked = unpacking.await?;
    chunk_stream.settle(unpacked.and(passed)).await
}

fn unpack_into(folder: &Path, from: impl Read) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let folder = folder.canonicalize()?;
    let mut archive = Archive::new(from);
    // Times are kept; owners, set-user-id bits and attributes from inside are not.
    archive.set_preserve_permissions(false);
    archive.set_unpack_xattrs(false);
    let mut folders = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        match entry.header().entry_type() {
            // A folder that its owner may not write to would refuse its own contents.
            EntryType::Directory => folders.push(entry),
            EntryType::Regular
            | EntryType::Continuous
            | EntryType::GNUSparse
            | EntryType::Symlink
            | EntryType::Link => {
                // `false`: a name with `..`; an error: a way out through a symbolic link.
                if !entry.unpack_in(&folder).with_context(|| name.clone())? {
                    warning(&format!("{name} is left out: it points outside the folder"));
                }
            }
            EntryType::XGlobalHeader => {}
            _ => warning(&format!(
                "{name} is left out: it is neither file, folder nor link"
            )),
        }
    }
    for mut entry in folders.into_iter().rev() {
        entry.unpack_in(&folder)?;
    }
    Ok(())
}

/// Blocking writes into a chunk stream.
struct SinkWriter<'a> {
    sink: &'a Sink,
}

impl Write for SinkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.sink.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Blocking reads from a channel.
struct SinkReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for SinkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.current = chunk?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
