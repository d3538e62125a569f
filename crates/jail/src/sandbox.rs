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

use crate::process::FirstProcess;

/// A connect within one machine answers at once or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) process: FirstProcess,
    pub(crate) cgroup: Cgroup,
    /// Given back when the last user of this sandbox is gone.
    pub(crate) slot: Slot,
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
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
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
        self.flush()?;
        soulbox_durable::sync_file(image).map_err(unwritten)
    }

    /// Puts everything written so far into the image. Blocking.
    pub(crate) fn flush(&self) -> Result<()> {
        let root = std::fs::File::open(format!("/proc/{}/root", self.process.pid()));
        rustix::fs::syncfs(root.map_err(unwritten)?).map_err(|e| unwritten(e.into()))
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
