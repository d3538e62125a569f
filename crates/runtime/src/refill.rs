//! What filling the warm pool may take from those who wait for a sandbox.

use std::{num::NonZero, thread::available_parallelism};

/// Of the machine's cpus, the part that all sandboxes that are being made for the pool may use.
const PART: usize = 2;
/// For each of them, in thousandths. Slightly more than one: language runtimes that are started
/// while the cap holds count their cpus by it, rounded up, and keep to that number afterwards. So
/// they count two, as many as a sandbox usually has.
const EACH_MILLIS: u32 = 1_050;

/// How a sandbox of [`soulbox_types::Purpose::Warm`] is made: nobody waits for it, so it yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// So many are made at the same time.
    pub at_once: usize,
    /// What each may use until it is somebody's, in thousandths of a cpu.
    pub cpu_millis: u32,
}

impl Refill {
    /// Its share of the cpu against a user's sandbox, which has 100, until it is somebody's.
    pub const CPU_WEIGHT: u16 = 10;

    pub fn of_this_machine() -> Self {
        Self::of(available_parallelism().map_or(1, NonZero::get))
    }

    fn of(cpus: usize) -> Self {
        match cpus / PART {
            0 => Self {
                at_once: 1,
                cpu_millis: EACH_MILLIS / 2,
            },
            at_once => Self {
                at_once,
                cpu_millis: EACH_MILLIS,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_refills_together_use_about_half_of_the_machine_and_always_something() {
        for cpus in 1..=256_usize {
            let refill = Refill::of(cpus);
            let together = refill.at_once * refill.cpu_millis as usize;
            assert!(together > 0 && together <= cpus * 525, "{cpus}: {refill:?}");
        }
        assert_eq!(
            Refill::of(2),
            Refill {
                at_once: 1,
                cpu_millis: 1_050
            }
        );
    }
}
