//! System calls that some machines lack or forbid.
#![expect(unsafe_code, reason = "landlock and userfaultfd have no safe wrapper")]

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
    mm::{UserfaultfdFlags, userfaultfd as open_userfaultfd},
};

use crate::report::Finding;

/// `LANDLOCK_CREATE_RULESET_VERSION` of the kernel's interface.
const LANDLOCK_VERSION: u32 = 1;

pub(crate) fn openat2(data_dir: &Path) -> Finding {
    let near = data_dir
        .ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/"));
    match (open_below(near, "."), open_below(near, "/")) {
        (Ok(_), Err(Errno::XDEV)) => Finding::ok("paths can be confined"),
        (Ok(_), Err(error)) | (Err(error), _) => Finding::fail(
            error.to_string(),
            "Linux 5.6 or later, outside of old containers",
        ),
        (Ok(_), Ok(_)) => Finding::fail(
            "a path was not confined",
            "another kernel or container runtime",
        ),
    }
}

fn open_below(base: &Path, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = rustix::fs::openat(CWD, base, flags, Mode::empty())?;
    rustix::fs::openat2(base, path, flags, Mode::empty(), ResolveFlags::BENEATH)
}

pub(crate) fn landlock() -> Finding {
    // SAFETY: with this flag the kernel reads nothing and only returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            LANDLOCK_VERSION,
        )
    };
    if version > 0 {
        Finding::ok(format!("version {version}"))
    } else {
        Finding::skipped(format!("not there ({})", std::io::Error::last_os_error()))
    }
}

pub(crate) fn userfaultfd() -> Finding {
    // SAFETY: the descriptor is closed again; no memory is registered with it.
    match unsafe { open_userfaultfd(UserfaultfdFlags::CLOEXEC) } {
        Ok(_) => Finding::ok("memory can be loaded on demand"),
        Err(error) => Finding::skipped(format!("not there ({error})")),
    }
}
