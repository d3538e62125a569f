//! The disk of a sandbox that cannot be used, for whoever wants its files: see [`DiskStream`].

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use soulbox_runtime::{DiskStream, Error, Result};

use crate::local::blocking;

const READ_CHUNK: u64 = 1 << 20;
const HEAD: usize = 16;

/// Blocking.
pub(crate) fn open(path: &Path) -> Result<DiskStream> {
    let disk = File::open(path).map_err(failed)?;
    let size = disk.metadata().map_err(failed)?.len();
    Ok(chunks(disk, size))
}

fn failed(error: io::Error) -> Error {
    Error::io("could not read the disk of a broken sandbox", error)
}

/// Takes a thread only for as long as it reads: a client takes its time.
fn chunks(disk: File, size: u64) -> DiskStream {
    let disk = Arc::new(disk);
    Box::pin(stream::try_unfold(Some(0), move |at| {
        let disk = Arc::clone(&disk);
        async move {
            let Some(at) = at else { return Ok(None) };
            let read = blocking(move || next_chunk(&disk, size, at).map_err(failed));
            read.await.map(Some)
        }
    }))
}

/// The first chunk from here on, and where to look for the one after it.
fn next_chunk(disk: &File, size: u64, at: u64) -> io::Result<(Bytes, Option<u64>)> {
    let start = match seek(disk, SeekFrom::Data(at)) {
        Ok(start) if start < size => start,
        // Only holes are left, unless it is not the disk that it was.
        Ok(_) | Err(Errno::NXIO) if disk.metadata()?.len() == size => {
            return Ok((head(size, 0).into(), None));
        }
        Ok(_) | Err(Errno::NXIO) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) => return Err(error.into()),
    };
    let end = seek(disk, SeekFrom::Hole(start))?.min(start + READ_CHUNK);
    let length = usize::try_from(end - start).map_err(io::Error::other)?;
    let mut chunk = head(start, end - start);
    chunk.resize(HEAD + length, 0);
    disk.read_exact_at(&mut chunk[HEAD..], start)?;
    Ok((chunk.into(), Some(end)))
}

fn head(start: u64, length: u64) -> Vec<u8> {
    [start.to_be_bytes(), length.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    const SIZE: u64 = 64 << 20;

    /// More than one chunk, and a hole.
    fn disk(fill: u8) -> File {
        let disk = tempfile::tempfile().unwrap();
        let data = vec![fill; usize::try_from(READ_CHUNK).unwrap() + 5];
        disk.write_all_at(&data, 0).unwrap();
        disk.set_len(SIZE).unwrap();
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
                let mut each = chunks(disk(1), SIZE);
                each.next().await.unwrap().unwrap();
                slow.push(each);
            }
            let all = chunks(disk(2), SIZE).collect::<Vec<_>>();
            let all = tokio::time::timeout(std::time::Duration::from_secs(20), all).await;
            let all: Vec<Bytes> = all.unwrap().into_iter().map(Result::unwrap).collect();
            let bytes: usize = all.iter().map(|chunk| chunk.len() - HEAD).sum();
            let data = usize::try_from(READ_CHUNK).unwrap() + 5;
            // As blocks of the file system have it; holes are not sent.
            assert!((data..data + (64 << 10)).contains(&bytes), "{bytes}");
            assert_eq!(*all.last().unwrap(), head(SIZE, 0));
        });
    }

    /// Cut in the data, in the hole behind it, and right where the last chunk ended.
    #[tokio::test]
    async fn a_disk_that_cannot_be_read_to_its_end_never_looks_whole() {
        for left in [0, READ_CHUNK / 2, READ_CHUNK, SIZE / 2] {
            let disk = disk(3);
            let cut = disk.try_clone().unwrap();
            let mut chunks = chunks(disk, SIZE);
            chunks.next().await.unwrap().unwrap();
            cut.set_len(left).unwrap();
            let mut rest: Vec<_> = chunks.collect().await;
            let last = rest.pop().unwrap();
            assert!(matches!(last, Err(Error::Io { .. })), "{left}: {last:?}");
            for chunk in rest {
                assert_ne!(chunk.unwrap()[8..HEAD], [0; 8], "{left}: no end was sent");
            }
        }
    }
}
