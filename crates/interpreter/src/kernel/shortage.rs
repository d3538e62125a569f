//! Whether the kernel of the machine killed for lack of memory, as far as it tells: it counts, in
//! the sandbox's own group, before it kills. envd does the same for commands.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

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

/// Zero where the kernel does not tell.
fn deaths() -> u64 {
    deaths_in(Path::new("/sys/fs/cgroup")).unwrap_or(0)
}

/// Version 2, then version 1.
fn deaths_in(groups: &Path) -> Option<u64> {
    let files = ["memory.events", "memory/memory.oom_control"];
    let text = files
        .iter()
        .find_map(|file| fs::read_to_string(groups.join(file)).ok())?;
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_and_none_is_no_answer() {
        let groups = tempfile::tempdir().unwrap();
        assert_eq!(deaths_in(groups.path()), None);
        fs::create_dir(groups.path().join("memory")).unwrap();
        let v1 = groups.path().join("memory/memory.oom_control");
        fs::write(v1, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        assert_eq!(deaths_in(groups.path()), Some(3));
        fs::write(groups.path().join("memory.events"), "oom 5\noom_kill 4\n").unwrap();
        assert_eq!(deaths_in(groups.path()), Some(4));
    }
}
