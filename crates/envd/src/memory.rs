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

/// Of the stack, from here on down. What is called by the trim itself needs less.
const KEPT_STACK: usize = 16 << 10;
/// As deep as requests go; what is not mapped of it is no failure.
const TRIMMED_STACK: usize = 112 << 10;
const PAGE: usize = 4 << 10;

fn trim() {
    // SAFETY: takes the heap's own locks and touches no live allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    trim_stack();
}

/// Returns the pages that deeper calls have left behind: of the event loop's frames, the rest of
/// a request's are some ten pages.
#[inline(never)]
fn trim_stack() {
    let here = 0_u8;
    let top = (std::ptr::from_ref(&here).addr() - KEPT_STACK) & !(PAGE - 1);
    let bottom = std::ptr::without_provenance_mut::<libc::c_void>(top - TRIMMED_STACK);
    // SAFETY: the stack grows down, so nothing that lives is below this frame and those of the
    // calls from here. The pages stay mapped, and are zero when they are used again. A thread's
    // stack is larger than both parts, so that nothing but a stack is in this range.
    unsafe {
        libc::madvise(bottom, TRIMMED_STACK, libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Private pages of this thread's stack, in KiB.
    fn stack_kib() -> u64 {
        let here = 0_u8;
        let here = std::ptr::from_ref(&here).addr();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut in_stack = false;
        for line in smaps.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-') {
                let bound = |text| usize::from_str_radix(text, 16).unwrap_or_default();
                in_stack = (bound(from)..bound(to)).contains(&here);
            } else if in_stack && first == "Rss:" {
                return line.split_whitespace().nth(1).unwrap().parse().unwrap();
            }
        }
        panic!("no mapping has this thread's stack");
    }

    /// As deep as it is asked to go, twelve kilobytes at a time.
    #[inline(never)]
    fn go_deep(left: usize) -> u8 {
        let mut used = [1_u8; 12 << 10];
        std::hint::black_box(&mut used);
        let below = if left > 0 { go_deep(left - 1) } else { 1 };
        used[7] * below
    }

    #[test]
    fn what_deep_calls_have_left_on_the_stack_goes_back_to_the_kernel() {
        assert_eq!(go_deep(8), 1);
        let before = stack_kib();
        trim();
        let after = stack_kib();
        assert!(after + 64 <= before, "{before} KiB before, {after} after");
        assert_eq!(go_deep(8), 1, "the pages can be used again");
    }
}
