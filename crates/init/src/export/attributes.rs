//! Owners, modes, times and extended attributes.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{
        Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fgetxattr,
        flistxattr, fsetxattr, futimens,
    },
    io::Errno,
};

/// The kernel's own bound for a list of names, and for a value.
const LARGEST: usize = 64 << 10;
const USUAL: usize = 1 << 10;
/// What a layer needs: overlayfs's word that a directory hides those below it, and where a moved
/// one came from. Its other notes are about the disk that they were made on.
const KEPT: [&[u8]; 5] = [
    b"trusted.overlay.opaque",
    b"trusted.overlay.redirect",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
];
/// Its data would be in a layer below.
const METACOPY: &[u8] = b"trusted.overlay.metacopy";

/// To an open file or directory. The order matters: a new owner takes set-uid bits and
/// capabilities away, and everything changes the time.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    fchown(to, Some(user), Some(group))?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    extended(from, to)?;
    futimens(to, &times(stat))?;
    Ok(())
}

pub(super) fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the fields' types differ between architectures"
    )]
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec.try_into().unwrap_or(0)),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec.try_into().unwrap_or(0)),
    }
}

fn extended(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    let names = read(|buffer| flistxattr(&from, buffer))?;
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let bytes = name.to_bytes();
        if bytes == METACOPY {
            return Err(io::Error::other("its data is in another layer"));
        }
        if !bytes.starts_with(b"user.") && !KEPT.contains(&bytes) {
            continue;
        }
        let value = read(|buffer| fgetxattr(&from, name, buffer))?;
        match fsetxattr(&to, name, &value, XattrFlags::empty()) {
            // The data folder's file system knows no such attributes. Without overlayfs's own,
            // the layer would show what was deleted.
            Err(Errno::OPNOTSUPP) if !bytes.starts_with(b"trusted.") => {}
            other => other?,
        }
    }
    Ok(())
}

/// Most are short.
fn read(get: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; USUAL];
    let length = match get(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(LARGEST, 0);
            get(&mut buffer)?
        }
        other => other?,
    };
    buffer.truncate(length);
    Ok(buffer)
}
