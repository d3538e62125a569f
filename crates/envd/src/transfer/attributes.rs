//! Extended attributes `user.*`, and only those: others are not a user's to give.

use std::os::fd::AsFd;

use rustix::{
    fs::{XattrFlags, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fsetxattr},
    io::Errno,
};

/// The kernel's own limit on one file's names, and on one value.
const KERNEL_MAX: usize = 64 << 10;
/// Of one file, names and values together: what a tar's extended header may hold.
pub(super) const MAX_TOTAL: usize = 256 << 10;
const PREFIX: &[u8] = b"user.";

pub(super) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn is_users(name: &[u8]) -> bool {
    name.starts_with(PREFIX) && !name.contains(&0)
}

/// File systems without attributes have none; what is too much is left out. Sizes are asked for
/// first, as nearly all files have none.
pub(super) fn read(file: impl AsFd) -> Attributes {
    let Ok(size @ 1..) = flistxattr_query(&file) else {
        return Vec::new();
    };
    let mut names = vec![0; size.min(KERNEL_MAX)];
    let listed = flistxattr(&file, &mut names).unwrap_or(0);
    names.truncate(listed);

    let mut found = Vec::new();
    let mut total = 0;
    for name in names.split(|byte| *byte == 0).filter(|name| is_users(name)) {
        let Some(value) = value(&file, name) else {
            continue;
        };
        total += name.len() + value.len();
        if total > MAX_TOTAL {
            break;
        }
        found.push((name.to_vec(), value));
    }
    found
}

/// `None`: gone or changed between two questions.
fn value(file: impl AsFd, name: &[u8]) -> Option<Vec<u8>> {
    let size = fgetxattr_query(&file, name).ok()?;
    let mut value = vec![0; size.min(KERNEL_MAX)];
    if size > 0 {
        let size = fgetxattr(&file, name, &mut value).ok()?;
        value.truncate(size);
    }
    Some(value)
}

/// Where the file system has none, they are left out, as tar does.
pub(super) fn write(file: impl AsFd, attributes: &Attributes) -> rustix::io::Result<()> {
    for (name, value) in attributes {
        match fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
