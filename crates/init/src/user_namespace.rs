//! The sandbox's user namespace: 65,536 ids of its own.

use std::{
    fs::{self, File},
    io,
    os::fd::OwnedFd,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use soulbox_sys::clone::{Cloned, Parent, clone_process};

use crate::{
    error::{Context, Failure},
    root::as_sandbox_root,
};

const IDS: u32 = 65_536;

/// A user namespace needs a process to be born in; this one only waits to be killed.
pub(crate) fn create(id_base: u32) -> Result<OwnedFd, Failure> {
    let step = "user namespace";
    // Whoever makes a user namespace pays for what is counted per user in it (inotify, timers,
    // pending signals, locked memory). As the host's root all sandboxes would share one account.
    let raw = as_sandbox_root(id_base, || {
        match clone_process(libc::CLONE_NEWUSER, Parent::Caller)? {
            // Not a step further: nobody has a name here yet, so every change of ids would fail.
            Cloned::Child => wait_to_be_killed(),
            Cloned::Parent(raw) => Ok(raw),
        }
    })
    .at(step)?;
    let result = map_and_open(raw, id_base).at(step);
    if let Some(pid) = Pid::from_raw(raw) {
        kill_process(pid, Signal::KILL).at(step)?;
        waitpid(Some(pid), WaitOptions::empty()).at(step)?;
    }
    result
}

/// Bounded: the parent kills us within milliseconds, and if it died we leave.
fn wait_to_be_killed() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
        if rustix::process::getppid().is_none_or(Pid::is_init) {
            std::process::exit(0);
        }
    }
}

fn map_and_open(pid: i32, id_base: u32) -> io::Result<OwnedFd> {
    let map = format!("0 {id_base} {IDS}\n");
    fs::write(format!("/proc/{pid}/uid_map"), &map)?;
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    Ok(File::open(format!("/proc/{pid}/ns/user"))?.into())
}
