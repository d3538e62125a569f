//! One running jail.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use soulbox_cgroup::Cgroup;
use soulbox_net::{Slot, connect_in};
use soulbox_runtime::{Error, Result, Stats};
use tokio::net::TcpStream;

use soulbox_machine::FirstProcess;

/// A connect within one machine answers at once or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Of its journal, all may have to be written (`disk.rs`).
const JOURNAL_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) process: FirstProcess,
    pub(crate) cgroup: Cgroup,
    /// Given back when the last user of this sandbox is gone.
    pub(crate) slot: Slot,
    /// The kernel's name of the device that its disk is on, if it is known.
    pub(crate) disk: Option<String>,
    /// Where its template's overlays are mounted, in their order.
    pub(crate) overlays: Vec<PathBuf>,
}

impl Sandbox {
    /// Tries the loopback addresses first: a server bound to all addresses listens there too.
    pub(crate) async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let candidates: [IpAddr; 3] = [
            Ipv4Addr::LOCALHOST.into(),
            Ipv6Addr::LOCALHOST.into(),
            self.slot.address().into(),
        ];
        let mut refused = io::ErrorKind::ConnectionRefused.into();
        for address in candidates {
            match connect_in(
                self.slot.netns(),
                SocketAddr::new(address, port),
                CONNECT_LIMIT,
            )
            .await
            {
                Ok(stream) => return Ok(stream),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Puts everything written so far on the host's disk. Blocking.
    ///
    /// First the sandbox's own file system into its image, then the image itself: the image is
    /// mounted without barriers, so the first does not imply the second.
    pub(crate) fn sync(&self, image: &Path) -> Result<()> {
        // What is lost already is told before that there is no room for more.
        self.check_disk()?;
        self.check_room(image)?;
        self.flush()?;
        soulbox_durable::sync_file(image).map_err(unwritten)
    }

    /// Puts everything written so far into the image. Blocking.
    pub(crate) fn flush(&self) -> Result<()> {
        let root = std::fs::File::open(format!("/proc/{}/root", self.process.pid()));
        let flushed = rustix::fs::syncfs(root.map_err(unwritten)?);
        self.check_disk()?;
        flushed.map_err(|e| unwritten(e.into()))
    }

    /// Nothing is begun that could not be finished: what finds no room on the host's disk is lost, and
    /// if it is a part of the journal, the sandbox's file system can only be read from then on.
    fn check_room(&self, image: &Path) -> Result<()> {
        let failed = |e| Error::io("could not look for room for the sandbox's files", e);
        let host = rustix::fs::statvfs(image).map_err(|e| failed(e.into()))?;
        // The kernel writes as root, to whom all of it is free.
        let free = host.f_bfree.saturating_mul(host.f_frsize);
        let unwritten_bytes = self.cgroup.unwritten_bytes();
        let needed = unwritten_bytes.map_err(|e| failed(io::Error::other(e)))? + JOURNAL_BYTES;
        if free < needed {
            return Err(unwritten(io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    /// Whether everything that was written in it got as far as its image. A write that failed later,
    /// when the kernel put it there, was told once, to whoever had the right file open; through the
    /// overlay, nobody is told. But its file system counts.
    fn check_disk(&self) -> Result<()> {
        let Some(device) = &self.disk else {
            return Ok(());
        };
        let count = |name| {
            let text = std::fs::read_to_string(format!("/sys/fs/ext4/{device}/{name}"));
            text.ok().and_then(|text| text.trim().parse().ok())
        };
        match ["errors_count", "warning_count"].map(|name| count(name).unwrap_or(0_u64)) {
            [0, 0] => Ok(()),
            [errors, warnings] => Err(Error::Damaged {
                what: "the sandbox's disk".to_owned(),
                message: format!(
                    "some of what was written in it could not be put on the server's disk, which \
                     was full or failed ({errors} errors and {warnings} warnings of its file \
                     system); copy out what you need, and make another sandbox"
                ),
            }),
        }
    }

    /// Blocking: small reads from the kernel's own file systems.
    pub(crate) fn stats(&self) -> Result<Stats> {
        let used = self
            .cgroup
            .stats()
            .map_err(|e| Error::io("could not read the cgroup", io::Error::other(e)))?;
        // The magic link leads to the sandbox's root itself; no name inside is followed.
        let disk = rustix::fs::statvfs(format!("/proc/{}/root", self.process.pid()))
            .map_err(|e| Error::io("could not read the disk's use", e.into()))?;
        Ok(Stats {
            cpu_micros: used.cpu_micros,
            memory_bytes: used.memory_bytes,
            memory_cache_bytes: used.memory_cache_bytes,
            memory_peak_bytes: used.memory_peak_bytes,
            disk_used_bytes: disk.f_blocks.saturating_sub(disk.f_bfree) * disk.f_frsize,
            disk_total_bytes: disk.f_blocks * disk.f_frsize,
            pids: used.pids,
            oom_kills: used.oom_kills,
        })
    }
}

fn unwritten(source: io::Error) -> Error {
    Error::io("could not write the sandbox's files to disk", source)
}
