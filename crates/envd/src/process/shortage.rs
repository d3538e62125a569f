//! Whether a process was killed for lack of memory.
//!
//! The kernel does not say whom it killed, only how often it did, in the sandbox's own group,
//! which is shown inside. It counts before it kills: whoever died of it finds the count risen.
//! Each count explains one death, so that a process which somebody killed by hand, after another
//! ran out of memory, is not counted among them.

use std::cell::Cell;

pub(super) use soulbox_sys::deaths_for_lack_of_memory as deaths;

use super::running::Exit;

/// What shells make of a child that was killed.
const KILLED_CHILD: i32 = 128 + libc::SIGKILL;

/// Assigns the kernel's OOM kills to processes that died: how many are assigned.
#[derive(Default)]
pub(super) struct OomTracker(Cell<u64>);

impl OomTracker {
    /// Whether a lack of memory explains this end of a process that started when `before` had
    /// died of it, and that we did not kill.
    pub(super) fn is_oom_kill(&self, exit: Exit, before: u64) -> bool {
        let killed = [Exit::Signal(libc::SIGKILL), Exit::Code(KILLED_CHILD)].contains(&exit);
        killed && self.explain(before, deaths())
    }

    fn explain(&self, before: u64, deaths: u64) -> bool {
        let known = before.max(self.0.get());
        let is_new = deaths > known;
        if is_new {
            self.0.set(known + 1);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_explains_one_death() {
        let tracker = OomTracker::default();
        assert!(!tracker.explain(0, 0), "the counter did not rise");
        assert!(tracker.explain(0, 1));
        assert!(!tracker.explain(0, 1), "killed by somebody, beside it");
        assert!(!tracker.explain(2, 2), "nothing new since it started");
        assert!(tracker.explain(2, 4) && tracker.explain(2, 4));
        assert!(!tracker.explain(2, 4));
    }

    #[test]
    fn other_ends_have_other_reasons() {
        let tracker = OomTracker::default();
        for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(libc::SIGTERM)] {
            assert!(!tracker.is_oom_kill(exit, 0));
        }
    }
}
