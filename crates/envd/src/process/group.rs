//! A process group that nobody leads.
//!
//! E2B starts commands without a terminal in envd's own group. Programs notice whether they lead
//! a group: `setsid PROGRAM` forks if it does, and ends at once with 0 while the program goes on.
//! But one group for all commands would leave no way to kill one of them with its children, and
//! `kill 0` in a script would hit the others. So a command gets a group of its own, made by a
//! process that exits at once; a group lives for as long as it has members.

#![expect(
    unsafe_code,
    reason = "a child that shares our memory has no safe wrapper"
)]

use std::{
    ffi::{c_int, c_void},
    io, mem, ptr,
};

use rustix::process::{Pid, WaitOptions, setpgid, waitpid};

/// It makes one system call.
const STACK: usize = 16 << 10;

/// Exists until it is dropped, or for as long as it has members.
pub(super) struct Group {
    id: Pid,
}

impl Group {
    pub(super) fn new() -> io::Result<Self> {
        let mut stack = Box::<[u128]>::new_uninit_slice(STACK / mem::size_of::<u128>());
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the child runs `lead` on a stack of its own, whose end is aligned and which
        // lives until after the call: with CLONE_VFORK this thread waits for the child's exit.
        let pid = unsafe {
            libc::clone(
                lead,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                ptr::null_mut(),
            )
        };
        match Pid::from_raw(pid) {
            Some(id) if pid > 0 => Ok(Self { id }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// For both sides of a fork: whoever comes second finds it done, or the program running.
    pub(super) fn join(&self, member: Option<Pid>) -> rustix::io::Result<()> {
        setpgid(member, Some(self.id))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Not collected before: its number is the group's, which a new process must not get.
        let _collected = rustix::io::retry_on_intr(|| waitpid(Some(self.id), WaitOptions::empty()));
    }
}

/// Runs in the child, in our memory, with all signals blocked.
extern "C" fn lead(_: *mut c_void) -> c_int {
    // SAFETY: a plain system call. It cannot fail for a process that leads no session.
    unsafe { libc::setpgid(0, 0) }
}
