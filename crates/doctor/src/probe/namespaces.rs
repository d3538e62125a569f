//! Every kind of namespace that a sandbox is in.
#![expect(unsafe_code, reason = "unshare has no safe wrapper")]

use std::{fs::File, io::Read, os::fd::OwnedFd};

use rustix::{
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
    thread::UnshareFlags,
};
use soulbox_sys::clone::{Cloned, Parent, clone_process};

use super::{Answer, Step};

/// Where shifted ids begin; any range will do.
pub(super) const ID_BASE: u32 = 1_000_000_000;

pub(super) fn all() -> Answer {
    let kinds = [
        ("mount", UnshareFlags::NEWNS),
        ("network", UnshareFlags::NEWNET),
        ("ipc", UnshareFlags::NEWIPC),
        ("uts", UnshareFlags::NEWUTS),
        ("cgroup", UnshareFlags::NEWCGROUP),
        ("pid", UnshareFlags::NEWPID),
    ];
    for (name, flag) in kinds {
        enter(flag).step(name)?;
    }
    // The first process of the new pid namespace would take it down with it: once is enough.
    user(ID_BASE).map(drop)?;
    Ok("mount, network, ipc, uts, cgroup, pid, user".into())
}

/// Leaves this process in a new namespace.
pub(super) fn enter(kind: UnshareFlags) -> std::io::Result<()> {
    // SAFETY: no descriptor table is unshared, and the process has a single thread.
    unsafe { rustix::thread::unshare_unsafe(kind) }?;
    Ok(())
}

/// A user namespace with 65,536 ids from `base` on.
pub(super) fn user(base: u32) -> Result<OwnedFd, String> {
    let (wait, hold) = rustix::pipe::pipe().step("pipe")?;
    match clone_process(libc::CLONE_NEWUSER, Parent::Caller).step("user")? {
        Cloned::Child => {
            drop(hold);
            // Until the parent lets go of its end, or is gone.
            let mut byte = [0];
            let end = File::from(wait).read(&mut byte);
            std::process::exit(i32::from(end.is_err()));
        }
        Cloned::Parent(raw) => {
            let map = format!("0 {base} 65536\n");
            let result = std::fs::write(format!("/proc/{raw}/uid_map"), &map)
                .and_then(|()| std::fs::write(format!("/proc/{raw}/gid_map"), &map))
                .and_then(|()| File::open(format!("/proc/{raw}/ns/user")))
                .step("user");
            if let Some(pid) = Pid::from_raw(raw) {
                kill_process(pid, Signal::KILL).step("user")?;
                waitpid(Some(pid), WaitOptions::empty()).step("user")?;
            }
            result.map(Into::into)
        }
    }
}
