use std::{fmt, io, path::PathBuf, time::Duration};

use crate::Controller;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the kernel offers no usable cgroup controller for {}; mount cgroup2 on /sys/fs/cgroup (or \
         the v1 hierarchies below it), and check that the kernel command line does not switch them off",
        List(missing)
    )]
    Missing { missing: Vec<Controller> },
    #[error("{name:?} is no name for a control group: use letters, digits, '-' and '_'")]
    InvalidName { name: String },
    #[error("could not {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} says {text:?}, which is not what the kernel documents", path.display())]
    Unexpected { path: PathBuf, text: String },
    #[error(
        "control group {name} uses {} MiB of memory, which cannot be cut to {} MiB",
        used >> 20,
        limit >> 20
    )]
    MemoryInUse { name: String, used: u64, limit: u64 },
    #[error("control group {name} was not {what} after {} ms", limit.as_millis())]
    Timeout {
        name: String,
        what: &'static str,
        limit: Duration,
    },
}

impl Error {
    /// The group (or the file in it) is not there.
    pub fn is_not_found(&self) -> bool {
        match self {
            // A read from a file of a group that was removed in between says ENODEV.
            Self::Io { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || source.raw_os_error() == Some(libc::ENODEV)
            }
            _ => false,
        }
    }

    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

struct List<'a>(&'a [Controller]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, controller) in self.0.iter().enumerate() {
            write!(f, "{}{controller}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
