//! Reads the configuration: options, the pipe with the configuration, the pipe that says ready.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{DumpableBehavior, Pid, set_dumpable_behavior},
};
use soulbox_types::{
    ENVD_PORT, EnvdConfig,
    guest::{CONFIG_FD, READY_FD},
};

use crate::memory;

/// A configuration is a few kilobytes; the environment may make it more.
const MAX_CONFIG: u64 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("unknown option {0:?}; known are --port PORT, --config FILE and --version")]
    Option(String),
    #[error("refusing to be traced: {0}")]
    Untraceable(#[source] io::Error),
    #[error("reading the configuration: {0} (the node gives it on descriptor {CONFIG_FD})")]
    ReadConfig(#[source] io::Error),
    #[error("the configuration is not valid: {0}")]
    ParseConfig(#[source] serde_json::Error),
    #[error("starting the event loop: {0}")]
    Runtime(#[source] io::Error),
    #[error("listening on port {0}: {1}")]
    Listen(u16, #[source] io::Error),
}

pub(crate) struct Options {
    pub(crate) port: u16,
    /// For tests: the configuration from a file instead of a pipe.
    config: Option<PathBuf>,
}

impl Options {
    /// `None`: only the version was asked for.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, Error> {
        let mut options = Self {
            port: ENVD_PORT,
            config: None,
        };
        while let Some(option) = args.next() {
            match option.as_str() {
                "--version" => return Ok(None),
                "--port" => match args.next().and_then(|port| port.parse().ok()) {
                    Some(port) => options.port = port,
                    None => return Err(Error::Option(option)),
                },
                "--config" => match args.next() {
                    Some(path) => options.config = Some(path.into()),
                    None => return Err(Error::Option(option)),
                },
                _ => return Err(Error::Option(option)),
            }
        }
        Ok(Some(options))
    }
}

pub(crate) struct Startup {
    pub(crate) config: EnvdConfig,
    pub(crate) ready: Option<OwnedFd>,
}

impl Startup {
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        memory::limit_heaps();
        refuse_tracing().map_err(Error::Untraceable)?;
        let mut text = Vec::new();
        let ready = if let Some(path) = &options.config {
            File::open(path)
                .and_then(|file| file.take(MAX_CONFIG).read_to_end(&mut text))
                .map_err(Error::ReadConfig)?;
            None
        } else {
            let file = File::from(inherited(CONFIG_FD).map_err(Error::ReadConfig)?);
            file.take(MAX_CONFIG)
                .read_to_end(&mut text)
                .map_err(Error::ReadConfig)?;
            inherited(READY_FD).ok()
        };
        ensure_standard_streams();
        let config = serde_json::from_slice(&text).map_err(Error::ParseConfig)?;
        Ok(Self { config, ready })
    }
}

/// Tokens are in our memory. Without this, root inside, who has our own user id, could attach to
/// us, read them, or stop us for good. A program that a child executes is traceable as usual.
fn refuse_tracing() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

pub(crate) fn signal_ready(ready: Option<OwnedFd>) {
    if let Some(ready) = ready {
        let _nobody_waits = File::from(ready).write_all(b"\n");
    }
}

/// Descriptors 0 to 2 must be taken: a pipe for a child that got one of these numbers would be
/// overwritten while the child's streams are put in place.
fn ensure_standard_streams() {
    while let Ok(fd) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
        if std::os::fd::AsRawFd::as_raw_fd(&fd) > 2 {
            break;
        }
        std::mem::forget(fd);
    }
}

pub(crate) fn is_init() -> bool {
    rustix::process::getpid() == Pid::INIT
}

/// Whether this kernel is the sandbox's own, as in a virtual machine. In a jail, pid 1 is in a
/// namespace of its own, and what belongs to the kernel (the clock) belongs to the host.
pub(crate) fn owns_kernel() -> bool {
    /// The kernel's fixed inode number of the first pid namespace.
    const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
    is_init()
        && std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|ns| ns.as_os_str() == FIRST_PID_NAMESPACE)
}

#[expect(
    unsafe_code,
    reason = "adopting a descriptor by its number has no safe wrapper"
)]
mod raw {
    use std::{
        io,
        os::fd::{FromRawFd, OwnedFd, RawFd},
    };

    /// Takes over a descriptor that the parent left open for us.
    pub(super) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
        // SAFETY: fcntl only asks about the number. When it is open, nothing else in this program
        // owns it: it was inherited by agreement, and this runs once, before any other descriptor.
        unsafe {
            if libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

use raw::inherited;
