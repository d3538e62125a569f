//! Returns free memory to the kernel. Every sandbox pays for what envd keeps, and most of them are idle.

#![expect(unsafe_code, reason = "the C library's heap has no safe interface")]

use std::{cell::Cell, rc::Rc, time::Duration};

use crate::state::Envd;

/// Work comes in bursts: one trim after each is enough.
const PAUSE: Duration = Duration::from_secs(5);

/// The few file threads share one heap: by default each would get and keep its own.
pub(crate) fn limit_heaps() {
    // SAFETY: called before any other thread exists.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Whether a trim is planned already.
#[derive(Default)]
pub(crate) struct TrimState {
    planned: Cell<bool>,
}

/// Returns free pages to the kernel a little later. Call it when something large was let go.
pub(crate) fn trim_later(envd: &Rc<Envd>) {
    if envd.trim_state.planned.replace(true) {
        return;
    }
    let envd = Rc::clone(envd);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(PAUSE).await;
        envd.trim_state.planned.set(false);
        trim();
    });
}

fn trim() {
    // SAFETY: takes the heap's own locks and touches no live allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
