use std::{ffi::CString, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, Dir, FileType, OFlags, ResolveFlags, statat},
    io::Errno,
};

use super::{Content, resolve::open_below};
use crate::{Entry, Error, Result, entry::link_target, path::CleanPath};

/// How many levels one call may list.
pub const MAX_DEPTH: u32 = 10;
/// Of one answer: it is held in memory.
const MAX_ENTRIES: usize = 50_000;

/// A folder below the one that is listed.
struct Pending {
    /// As on disk, which need not be text.
    relative: Vec<u8>,
    depth: u32,
}

impl Content {
    /// Everything below a directory, `depth` levels deep, in the order of the paths. Links are not
    /// followed, except the path itself.
    pub fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>> {
        let path = CleanPath::parse(path)?;
        let top = self.find_directory(&path)?;
        let above = match path.absolute().as_str() {
            "/" => String::new(),
            path => path.to_owned(),
        };
        let mut entries = Vec::new();
        let mut pending = vec![Pending {
            relative: b".".to_vec(),
            depth: depth.clamp(1, MAX_DEPTH),
        }];
        while let Some(folder) = pending.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let links = ResolveFlags::NO_SYMLINKS;
            let open = match open_below(&top, folder.relative.as_slice(), flags, links) {
                Ok(open) => open,
                // It went away, or became something else, while we were listing.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => continue,
                Err(error) => return Err(Error::errno("open a directory")(error)),
            };
            read_folder(open.as_fd(), &folder, &above, &mut entries, &mut pending)?;
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }
}

fn read_folder(
    open: impl AsFd + Copy,
    folder: &Pending,
    above: &str,
    entries: &mut Vec<Entry>,
    pending: &mut Vec<Pending>,
) -> Result<()> {
    let names = Dir::read_from(open).map_err(Error::errno("read a directory"))?;
    for name in names {
        let name = name.map_err(Error::errno("read a directory"))?;
        let name: CString = name.file_name().to_owned();
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(open, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(Error::errno("look at an entry")(error)),
        };
        if entries.len() == MAX_ENTRIES {
            return Err(Error::TooMany(MAX_ENTRIES));
        }
        let relative = match folder.relative.as_slice() {
            b"." => name.as_bytes().to_vec(),
            parent => [parent, b"/", name.as_bytes()].concat(),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let target = (kind == FileType::Symlink).then(|| link_target(open, &name));
        let path = format!("{above}/{}", String::from_utf8_lossy(&relative));
        entries.push(Entry::new(path, &stat, target.flatten()));
        if kind == FileType::Directory && folder.depth > 1 {
            pending.push(Pending {
                relative,
                depth: folder.depth - 1,
            });
        }
    }
    Ok(())
}
