//! Whether the machine's kernel killed a process for lack of memory, as far as it reports that: it counts, in
//! the sandbox's own group, before it kills. envd does the same for commands.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use soulbox_sys::deaths_for_lack_of_memory as deaths;

/// How many deaths are explained, or older than the youngest of our processes.
static KNOWN: AtomicU64 = AtomicU64::new(0);

/// What was counted until now does not explain the end of a process that starts now.
pub(super) fn start_counting() {
    KNOWN.fetch_max(deaths(), Relaxed);
}

/// Whether somebody died of it since then; asked about one that was killed.
pub(super) fn explains_a_death() -> bool {
    let deaths = deaths();
    KNOWN.fetch_max(deaths, Relaxed) < deaths
}
