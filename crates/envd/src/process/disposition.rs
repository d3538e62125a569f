//! What signals do to a process, by the kernel's own call: the C library refuses to touch those
//! that it keeps for itself, and nothing here may be left out.

#![expect(unsafe_code, reason = "no safe wrapper changes a signal's disposition")]

use std::{ffi::c_int, mem, ptr};

const LAST_SIGNAL: c_int = 64;

/// The kernel's structure. All but the first field stay zero.
#[repr(C)]
struct KernelAction {
    handler: libc::sighandler_t,
    others: [u64; 3],
}

/// For a child, right before it executes its program. Only makes system calls.
pub(super) fn all_to_default() {
    for signal in 1..=LAST_SIGNAL {
        set(signal, libc::SIG_DFL);
    }
}

/// For the first process of a sandbox, before anything else.
///
/// The kernel drops what programs inside send to a first process without a handler, unless the
/// signal is blocked: then it takes *another* thread that would receive it, and kills everything.
/// The C library blocks all signals whenever it forks. An ignored signal kills nobody.
pub(crate) fn ignore_all_but_child_deaths() {
    for signal in 1..=LAST_SIGNAL {
        if signal != libc::SIGCHLD {
            set(signal, libc::SIG_IGN);
        }
    }
}

/// Refused for SIGKILL and SIGSTOP, which stay what they are.
fn set(signal: c_int, handler: libc::sighandler_t) {
    let action = KernelAction {
        handler,
        others: [0; 3],
    };
    // SAFETY: the kernel reads one structure of ours, of its own layout, that names no function.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const action,
            ptr::null_mut::<KernelAction>(),
            mem::size_of::<u64>(),
        );
    }
}
