//! A Docker daemon that the bench starts, gone without a trace.
//!
//! The daemon lives in pid, network and mount namespaces of its own: its bridge, its firewall
//! rules, its mounts and all of its processes end with them, without a word to the host's. Only
//! its cgroups and its folder are left, which this process removes. It does so when its input
//! ends: that is, also when the bench is killed.
//!
//! ```text
//! bench ──pipe──► this process ──clone──► first process ──► dockerd ──► containerd, containers
//!                 waits for the end       collects orphans
//!                 of the pipe
//! ```

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open,
        set_parent_process_death_signal, waitpid,
    },
};
use serde::{Deserialize, Serialize};
use soulbox_sys::clone::{Cloned, Parent, clone_process};

use super::{Step, cgroups, read_spec};

pub(crate) const TASK: &str = "daemon";

const NAMESPACES: i32 = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWNET;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Where programs are found that the daemon calls.
    pub(crate) path: OsString,
    pub(crate) log: PathBuf,
    /// Removed at the end.
    pub(crate) folder: PathBuf,
    /// Name of the group that all of its containers are below; removed at the end.
    pub(crate) cgroup: String,
}

pub(super) fn serve() -> io::Result<()> {
    let spec: Spec = read_spec()?;
    let log = File::create(&spec.log).step("log")?;
    let first = match clone_process(NAMESPACES, Parent::Caller).step("clone")? {
        Cloned::Child => be_first(&spec, &log),
        Cloned::Parent(pid) => Pid::from_raw(pid)
            .ok_or("a pid out of range")
            .step("clone")?,
    };
    let result = wait(first);
    // All others of its pid namespace are killed with it, and their mounts go.
    kill_process(first, Signal::KILL).step("kill the daemon")?;
    waitpid(Some(first), WaitOptions::empty()).step("wait for the daemon")?;
    let groups = cgroups::remove(&spec.cgroup).step("remove the daemon's cgroups");
    let folder = fs::remove_dir_all(&spec.folder).step("remove the daemon's folder");
    result.and(groups).and(folder)
}

/// Until nobody holds the other end of our input, or the daemon ended.
fn wait(first: Pid) -> io::Result<()> {
    let daemon = pidfd_open(first, PidfdFlags::empty()).step("pidfd")?;
    let input = io::stdin();
    loop {
        let mut files = [
            PollFd::new(&input, PollFlags::IN),
            PollFd::new(&daemon, PollFlags::IN),
        ];
        rustix::io::retry_on_intr(|| poll(&mut files, None)).step("poll")?;
        if !files[1].revents().is_empty() {
            return Err(io::Error::other("the daemon ended by itself"));
        }
        if !files[0].revents().is_empty() && rustix::io::read(&input, &mut [0; 64])? == 0 {
            return Ok(());
        }
    }
}

fn be_first(spec: &Spec, log: &File) -> ! {
    let Err(error) = start_and_reap(spec, log);
    // The log is where the bench looks for the reason.
    let _lost = writeln!(&*log, "{error}");
    std::process::exit(1)
}

fn start_and_reap(spec: &Spec, log: &File) -> io::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("end with the parent")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("private mounts")?;
    let none = MountFlags::empty();
    mount("proc", "/proc", "proc", none, None).step("/proc")?;
    // Another daemon's sockets and locks are there.
    mount("tmpfs", "/run", "tmpfs", none, None).step("/run")?;
    let daemon = Command::new(&spec.program)
        .args(&spec.arguments)
        .env("PATH", &spec.path)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()
        .step("start dockerd")?;
    loop {
        let ended = waitpid(None, WaitOptions::empty()).step("wait")?;
        if ended.is_some_and(|(pid, _)| pid.as_raw_nonzero().get().unsigned_abs() == daemon.id()) {
            return Err(io::Error::other("dockerd ended"));
        }
    }
}
