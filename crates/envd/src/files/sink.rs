//! Writes an upload to its file, a buffer at a time.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::fs::{FileType, Gid, Mode, OFlags, Uid, fchown, fstat, ftruncate, open};

use super::source::blocking;
use crate::{http::reply::Failure, paths, users::User};

const BUFFER: usize = 256 << 10;
/// A write this small is done at once; a thread would cost more.
const SMALL: usize = 64 << 10;

pub(super) struct FileSink {
    file: Option<File>,
    buffer: Vec<u8>,
}

impl FileSink {
    /// Makes or empties the file. Watchers see a new one as create, then chown, then one write.
    pub(super) fn create(path: &Path, user: &User) -> Result<Self, Failure> {
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
        if found.st_size > 0 {
            ftruncate(&file, 0).map_err(failed)?;
        }
        fchown(
            &file,
            Some(Uid::from_raw(user.uid)),
            Some(Gid::from_raw(user.gid)),
        )
        .map_err(failed)?;
        Ok(Self {
            file: Some(file.into()),
            buffer: Vec::new(),
        })
    }

    pub(super) async fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let take = data.len().min(BUFFER - self.buffer.len());
            let (now, later) = data.split_at(take);
            self.buffer.extend_from_slice(now);
            data = later;
            if self.buffer.len() >= BUFFER {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Writes what is left and gives the file back.
    pub(super) async fn finish(mut self) -> io::Result<File> {
        self.flush().await?;
        self.file.ok_or_else(gone)
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut file = self.file.take().ok_or_else(gone)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = if buffer.len() <= SMALL {
            let written = file.write_all(&buffer);
            self.file = Some(file);
            written
        } else {
            let (file, returned, written) = blocking(move || {
                let written = file.write_all(&buffer);
                (file, buffer, written)
            })
            .await?;
            self.file = Some(file);
            buffer = returned;
            written
        };
        buffer.clear();
        self.buffer = buffer;
        written
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

fn gone() -> io::Error {
    io::Error::other("the file was lost by a failed write")
}
