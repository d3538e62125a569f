//! The first process of a sandbox, found and watched without races.
//!
//! A pid alone can be given to another process; a descriptor of it cannot. Every signal goes
//! through the descriptor, which was opened while the start time was known to match.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use soulbox_runtime::Exit;
use tokio::sync::watch;

use crate::readable::readable;

/// When the kernel had no room for one more thing to watch.
const WATCH_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct FirstProcess {
    pid: i32,
    start_time: u64,
    descriptor: Arc<OwnedFd>,
    exit: watch::Receiver<Option<Exit>>,
}

impl FirstProcess {
    /// Takes hold of a process that is known to exist, and starts to watch it.
    /// `None` when it is gone, or is another one than `start_time` says.
    pub fn find(pid: i32, start_time: Option<u64>) -> io::Result<Option<Self>> {
        let Some(number) = Pid::from_raw(pid) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(number, PidfdFlags::NONBLOCK) {
            Ok(descriptor) => Arc::new(descriptor),
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Read after the descriptor was opened: if it matches, the descriptor is the right one.
        let Some(found) = start_time_of(pid)? else {
            return Ok(None);
        };
        if start_time.is_some_and(|expected| expected != found) {
            return Ok(None);
        }
        let (sender, exit) = watch::channel(None);
        tokio::spawn(watch_exit(Arc::clone(&descriptor), sender));
        Ok(Some(Self {
            pid,
            start_time: found,
            descriptor,
            exit,
        }))
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    pub fn is(&self, other: &Self) -> bool {
        (self.pid, self.start_time) == (other.pid, other.start_time)
    }

    /// Ends the whole pid namespace. No error when it is gone already.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.descriptor.as_fd(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// As far as is known: the news of a death takes a moment.
    pub fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    pub async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        let unknown = || Exit {
            description: "unknown".to_owned(),
        };
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_else(unknown),
            Err(_) => unknown(),
        }
    }
}

async fn watch_exit(descriptor: Arc<OwnedFd>, sender: watch::Sender<Option<Exit>>) {
    // That it cannot be watched just now does not mean that it ended.
    while let Err(error) = readable(Arc::clone(&descriptor)).await {
        tracing::warn!(%error, "a sandbox cannot be watched; trying again");
        tokio::select! {
            () = tokio::time::sleep(WATCH_AGAIN) => {}
            () = sender.closed() => return,
        }
    }
    // Nobody listens any more when the sandbox was forgotten.
    let description = reap(&descriptor);
    sender.send_replace(Some(Exit { description }));
}

/// Our own child leaves a zombie until it is waited for; one that we adopted belongs to init.
fn reap(descriptor: &Arc<OwnedFd>) -> String {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(descriptor.as_fd()), options) {
        Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown".to_owned(),
        },
        Ok(None) | Err(_) => "unknown".to_owned(),
    }
}

/// Field 22 of `/proc/<pid>/stat`. The second field is the program's name in parentheses, which
/// may itself hold spaces and parentheses. `None` only for one that is not there: whoever cannot
/// look, for want of descriptors for example, knows nothing about it.
fn start_time_of(pid: i32) -> io::Result<Option<u64>> {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let unknown = || io::Error::other(format!("/proc/{pid}/stat is not as expected"));
    let (_, rest) = stat.rsplit_once(')').ok_or_else(unknown)?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().ok_or_else(unknown)?;
    if state == "Z" || state == "X" {
        return Ok(None);
    }
    let start = fields.nth(18).and_then(|field| field.parse().ok());
    start.map(Some).ok_or_else(unknown)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        rustix::io::Errno::from_io_error(error),
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH)
    )
}

/// Whether the process that a server recorded is still there. Blocking.
pub fn is_alive(pid: i32, start_time: u64, recorded_in_boot: &str) -> io::Result<bool> {
    Ok(boot_id()? == recorded_in_boot && start_time_of(pid)? == Some(start_time))
}

pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "reaping it is what is tested")]
    async fn the_end_of_a_process_is_noticed_and_it_is_reaped() {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = FirstProcess::find(pid, None).unwrap().unwrap();
        process.kill().unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(10), process.exited())
            .await
            .unwrap();
        assert_eq!(exit.description, "signal 9");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        process.kill().unwrap();
    }

    #[tokio::test]
    async fn another_process_with_the_same_pid_is_not_taken_for_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let start = start_time_of(own).unwrap().unwrap();
        assert!(FirstProcess::find(own, Some(start)).unwrap().is_some());
        assert!(FirstProcess::find(own, Some(start + 1)).unwrap().is_none());
    }
}
