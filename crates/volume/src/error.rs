use std::io;

use rustix::io::Errno;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something with a volume did not work. The texts are for the caller, except that of `Io`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("volume {0} is not there")]
    NoVolume(String),
    #[error("path not found")]
    NotFound,
    #[error("path exists already")]
    Exists,
    #[error("a part of the path is not a directory")]
    NotADirectory,
    #[error("path is a directory")]
    IsADirectory,
    #[error("path is neither a file nor a directory")]
    Special,
    #[error("the path has too many symbolic links")]
    Links,
    #[error("the root of a volume cannot be removed or replaced")]
    Root,
    #[error("invalid path: {0}")]
    Path(&'static str),
    #[error("the directory has more than {0} entries: list a smaller part of it")]
    TooMany(usize),
    #[error("the volume is full")]
    NoSpace,
    #[error(
        "the server's disk has only {free_mib} MiB free, and {reserve_mib} MiB are kept in reserve: \
         remove files, or let the operator free space there"
    )]
    HostFull { free_mib: u64, reserve_mib: u64 },
    /// Its file system met an error of the disk below and takes no more writes.
    #[error(
        "the volume takes no more writes since the server's disk failed it (it was full, or is \
         broken): its files can be read; it is repaired when nothing uses it and it is opened anew"
    )]
    ReadOnly,
    #[error("could not {what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// `what` follows "could not".
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::of(what, source)
    }

    pub(crate) fn errno(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::of(what, errno.into())
    }

    pub(crate) fn of(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::XDEV | Errno::STALE) => Self::NotFound,
            Some(Errno::EXIST | Errno::NOTEMPTY) => Self::Exists,
            Some(Errno::NOTDIR) => Self::NotADirectory,
            Some(Errno::ISDIR) => Self::IsADirectory,
            Some(Errno::LOOP) => Self::Links,
            Some(Errno::NAMETOOLONG) => Self::Path("too long"),
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace,
            Some(Errno::ROFS) => Self::ReadOnly,
            // With a path in its words, it has no number any more.
            None if is_full(source.kind()) => Self::NoSpace,
            _ => Self::Io { what, source },
        }
    }
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
