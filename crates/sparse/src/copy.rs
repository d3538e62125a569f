//! Copies of files with holes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

const CHUNK: usize = 1 << 20;
const BLOCK: usize = 4096;

/// A copy of `from` at `to`, which shares its blocks where the file system can.
///
/// The new file is opened once: ext4 writes one that is emptied by a second opening to the disk in
/// the moment it is closed, and whoever creates a sandbox would wait for that.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (File::open(from)?, new_image(to)?);
    if !share(&source, &target)? {
        copy_data(&source, &target)?;
    }
    Ok(())
}

/// Makes `to` a copy that shares its blocks with `from`; `false` where the file system cannot.
pub fn share_blocks(from: &Path, to: &Path) -> io::Result<bool> {
    share(&File::open(from)?, &new_image(to)?)
}

fn share(source: &File, target: &File) -> io::Result<bool> {
    match rustix::fs::ioctl_ficlone(target, source) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies only data; holes stay holes.
pub fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    copy_data(&File::open(from)?, &new_image(to)?)
}

fn copy_data(source: &File, target: &File) -> io::Result<()> {
    target.set_len(source.metadata()?.len())?;
    for (start, end) in data_ranges(source)? {
        copy_range(source, target, start, end)?;
    }
    Ok(())
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK.min(usize::try_from(end - start).unwrap_or(CHUNK))];
    let mut at = start;
    while at < end {
        let wanted = buffer
            .len()
            .min(usize::try_from(end - at).unwrap_or(buffer.len()));
        source.read_exact_at(&mut buffer[..wanted], at)?;
        target.write_all_at(&buffer[..wanted], at)?;
        at += wanted as u64;
    }
    Ok(())
}

/// Where a file holds data, in order.
pub fn data_ranges(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut position = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(ranges),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        ranges.push((start, end));
        position = end;
    }
}

/// Makes `target` the same as `source`, writing only blocks that are not.
pub fn copy_differences(source: &Path, target: &Path) -> io::Result<()> {
    let source = File::open(source)?;
    let target = OpenOptions::new().read(true).write(true).open(target)?;
    // What either has may differ; where both have holes they agree.
    let mut ranges = data_ranges(&source)?;
    ranges.extend(data_ranges(&target)?);
    ranges.sort_unstable();
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut done = 0;
    for (start, end) in ranges {
        let mut at = start.max(done);
        while at < end {
            let length = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
            source.read_exact_at(&mut ours[..length], at)?;
            target.read_exact_at(&mut theirs[..length], at)?;
            if ours[..length] != theirs[..length] {
                write_differences(&target, at, &ours[..length], &theirs[..length])?;
            }
            at += length as u64;
        }
        done = done.max(end);
    }
    Ok(())
}

fn write_differences(target: &File, start: u64, new: &[u8], old: &[u8]) -> io::Result<()> {
    let mut at = start;
    for (new, old) in new.chunks(BLOCK).zip(old.chunks(BLOCK)) {
        if new != old {
            target.write_all_at(new, at)?;
        }
        at += new.len() as u64;
    }
    Ok(())
}

/// An empty file that only its owner reads.
pub fn new_image(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pass_makes_the_copy_equal() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        let file = File::create(&source).unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(&[1; 10_000], 4096).unwrap();
        file.write_all_at(&[2; 5000], 9 << 20).unwrap();
        copy_sparse(&source, &target).unwrap();
        // Meanwhile: changed, added, and freed.
        file.write_all_at(&[3; 100], 5000).unwrap();
        file.write_all_at(&[4; 9000], 12 << 20).unwrap();
        file.write_all_at(&[0; 5000], 9 << 20).unwrap();
        copy_differences(&source, &target).unwrap();
        assert!(std::fs::read(&source).unwrap() == std::fs::read(&target).unwrap());
    }
}
