//! Kills every process of a group, also of one that forks as fast as it can.

use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{Cgroup, Controller, Error, Result, Version, file};

/// Until the kernel has let go of every process. Killing takes milliseconds; memory of a large
/// process or a disk that answers late can make it seconds.
const DEADLINE: Duration = Duration::from_secs(10);
/// A fork bomb keeps the v1 freezer busy only until its pids limit is reached.
const FREEZE: Duration = Duration::from_millis(250);
/// Descriptors held at a time.
const BATCH: usize = 64;

impl Cgroup {
    /// Kills everything in the group, frozen or not, and waits until nothing is left in it.
    /// Fine when the group is empty or gone.
    pub fn kill_all(&self) -> Result<()> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        while !self.pids()?.is_empty() {
            self.kill_once()?;
            if self.pids()?.is_empty() {
                break;
            }
            if start.elapsed() >= DEADLINE {
                return Err(self.timed_out("empty", DEADLINE));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    fn kill_once(&self) -> Result<()> {
        if let Some(hierarchy) = self.hierarchy_of(Controller::Freezer)
            && hierarchy.version == Version::V2
        {
            // Atomic, and wakes frozen ones. Since Linux 5.14.
            let path = self.directory(hierarchy).join("cgroup.kill");
            if file::write_if_present(&path, "1")? {
                return Ok(());
            }
        }
        // Frozen, the list cannot grow while we walk it. A v1 group dies only when thawed.
        ignore_gone_or_late(self.freeze(FREEZE))?;
        let killed = self.signal_members();
        ignore_gone_or_late(self.thaw(FREEZE))?;
        killed
    }

    fn signal_members(&self) -> Result<()> {
        for batch in self.pids()?.chunks(BATCH) {
            let opened: Vec<_> = batch
                .iter()
                .filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?))
                .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
                .collect();
            // A number that is still on the list now is the process behind the descriptor, or
            // that one is dead: in neither case is an unrelated process with a reused pid hit.
            let members = self.pids()?;
            for (pid, fd) in opened {
                let number = pid.as_raw_nonzero().get().unsigned_abs();
                if members.binary_search(&number).is_ok() {
                    match pidfd_send_signal(&fd, Signal::KILL) {
                        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                        Err(error) => {
                            tracing::warn!(group = self.name(), number, %error, "could not kill");
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn ignore_gone_or_late(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Timeout { .. }) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
