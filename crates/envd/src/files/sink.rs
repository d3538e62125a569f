//! Writes an upload to its file, some chunks at a time, while the next are received.

use std::{
    fs::File,
    io::{self, IoSlice, Write},
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid, fchown, fstat, ftruncate, open};

use super::threads::{BlockingTask, blocking};
use crate::{http::reply::Failure, paths, users::User};

/// Written by a file thread at a time. While it writes, as much is received.
const BATCH: usize = 256 << 10;
/// A write this small is done at once; a thread would cost more.
const SMALL: usize = 64 << 10;
/// Emptying a file of this size keeps others waiting.
const MUCH: i64 = 8 << 20;
/// A smaller chunk is copied: however small, it may keep a whole receive buffer alive.
const WORTH_KEEPING: usize = 16 << 10;

pub(super) struct FileSink {
    file: Arc<File>,
    waiting: Batch,
    writing: Option<BlockingTask<io::Result<()>>>,
}

impl FileSink {
    /// Makes or empties the file. Watchers see a new one as create, then chown, then one write.
    pub(super) async fn create(path: &Path, user: &User) -> Result<Self, Failure> {
        let shown = path.display();
        if path.is_dir() {
            return Err(Failure::bad_request(format!(
                "path '{shown}' is a directory"
            )));
        }
        if let Some(parent) = path.parent() {
            paths::make_directories(parent, user)
                .map_err(|e| Failure::io(format!("error making '{}'", parent.display()), &e))?;
        }
        let file = open_for_writing(path)?;
        let failed =
            |e: rustix::io::Errno| Failure::io(format!("error writing '{shown}'"), &e.into());
        let found = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Failure::bad_request(format!(
                "path '{shown}' is not a regular file"
            )));
        }
        let file = Arc::new(File::from(file));
        match found.st_size {
            0 => {}
            1..MUCH => ftruncate(&file, 0).map_err(failed)?,
            _ => {
                let file = Arc::clone(&file);
                let emptied = blocking(move || ftruncate(&file, 0)).await;
                let emptied = emptied.and_then(|emptied| Ok(emptied?));
                emptied.map_err(|e| Failure::io(format!("error writing '{shown}'"), &e))?;
            }
        }
        fchown(
            &file,
            Some(Uid::from_raw(user.uid)),
            Some(Gid::from_raw(user.gid)),
        )
        .map_err(failed)?;
        Ok(Self {
            file,
            waiting: Batch::default(),
            writing: None,
        })
    }

    pub(super) async fn write(&mut self, data: Bytes) -> io::Result<()> {
        self.waiting.add(data);
        if self.waiting.length < BATCH {
            return Ok(());
        }
        self.written().await?;
        let (file, batch) = (Arc::clone(&self.file), std::mem::take(&mut self.waiting));
        self.writing = Some(blocking(move || batch.write_to(&file)));
        Ok(())
    }

    /// Writes what is left and gives the file back.
    pub(super) async fn finish(mut self) -> io::Result<Arc<File>> {
        self.written().await?;
        let (file, batch) = (Arc::clone(&self.file), self.waiting);
        if batch.length <= SMALL {
            batch.write_to(&file)?;
        } else {
            blocking(move || batch.write_to(&file)).await??;
        }
        Ok(self.file)
    }

    /// Returns when nothing is being written.
    pub(super) async fn written(&mut self) -> io::Result<()> {
        match self.writing.take() {
            Some(writing) => writing.await?,
            None => Ok(()),
        }
    }
}

/// Chunks to be written together.
#[derive(Default)]
struct Batch {
    chunks: Vec<Bytes>,
    /// Small ones, after all the others.
    copied: BytesMut,
    length: usize,
}

impl Batch {
    fn add(&mut self, data: Bytes) {
        self.length += data.len();
        if data.len() < WORTH_KEEPING {
            self.copied.extend_from_slice(&data);
        } else {
            self.keep_copied();
            self.chunks.push(data);
        }
    }

    fn keep_copied(&mut self) {
        if !self.copied.is_empty() {
            self.chunks.push(self.copied.split().freeze());
        }
    }

    /// Blocking.
    fn write_to(mut self, mut file: &File) -> io::Result<()> {
        self.keep_copied();
        let mut slices: Vec<IoSlice<'_>> = self.chunks.iter().map(|p| IoSlice::new(p)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Never waits: a FIFO without a reader, a device or a lease answers with an error instead.
fn open_for_writing(path: &Path) -> Result<OwnedFd, Failure> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(path, flags, Mode::from_raw_mode(0o644)).map_err(|e| {
        let shown = path.display();
        match e {
            rustix::io::Errno::NXIO | rustix::io::Errno::ISDIR => {
                Failure::bad_request(format!("path '{shown}' is not a regular file"))
            }
            _ => Failure::io(format!("error opening '{shown}'"), &e.into()),
        }
    })
}
