//! The bytes of a file. Source and copy are on different file systems, so no blocks can be shared.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{SeekFrom, ftruncate, seek},
    io::{Errno, pread, pwrite},
};

/// Of the buffer that all files share.
pub(super) const CHUNK: usize = 256 << 10;

/// Holes stay holes: a file may claim to be larger than any disk.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, size: u64, buffer: &mut [u8]) -> io::Result<()> {
    if size == 0 {
        return Ok(());
    }
    ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let start = match seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(from, SeekFrom::Hole(start))?.min(size);
        copy_range(from, to, start, end, buffer)?;
        at = end;
    }
    Ok(())
}

fn copy_range(
    from: impl AsFd,
    to: impl AsFd,
    start: u64,
    end: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let wanted = buffer
            .len()
            .min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let read = pread(&from, &mut buffer[..wanted], at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let written = pwrite(&to, rest, at)?;
            rest = &rest[written..];
            at += written as u64;
        }
    }
    Ok(())
}
