//! How often the kernel killed for lack of memory.

use std::{fs, path::Path};

/// Version 2, then version 1.
const FILES: [&str; 2] = ["memory.events", "memory/memory.oom_control"];

/// In the group that a sandbox sees as its own, since it started; zero where the kernel does not tell.
/// It counts before it kills: whoever died of it finds the count risen.
pub fn deaths_for_lack_of_memory() -> u64 {
    deaths_in(Path::new("/sys/fs/cgroup")).unwrap_or(0)
}

fn deaths_in(groups: &Path) -> Option<u64> {
    let text = FILES
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
        let v2 = "low 0\nhigh 0\nmax 9\noom 5\noom_kill 4\noom_group_kill 0\n";
        fs::write(groups.path().join("memory.events"), v2).unwrap();
        assert_eq!(deaths_in(groups.path()), Some(4));
    }
}
