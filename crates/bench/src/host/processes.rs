//! The memory of the processes of a server and of its sandboxes.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
};

use super::kibibytes;

/// In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessMemory {
    pub(super) pss: i64,
    pub(super) private_dirty: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemoryByOwner {
    pub(super) sandboxes: ProcessMemory,
    /// And its helpers.
    pub(super) server: ProcessMemory,
}

/// Processes below the control group belong to sandboxes, wherever they come from; the server's
/// are itself and its descendants that are not.
pub(super) fn measure(server: u32, group: &str) -> io::Result<MemoryByOwner> {
    let mut parents = HashMap::new();
    let mut inside = HashSet::new();
    for entry in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that ends meanwhile counts as nothing.
        let Some(parent) = fs::read_to_string(entry.path().join("stat"))
            .ok()
            .and_then(|text| parent_of(&text))
        else {
            continue;
        };
        parents.insert(pid, parent);
        let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if is_below(&groups, group) {
            inside.insert(pid);
        }
    }
    let mut memory = MemoryByOwner::default();
    for pid in parents.keys().copied() {
        let side = if inside.contains(&pid) {
            &mut memory.sandboxes
        } else if descends(pid, server, &parents) {
            &mut memory.server
        } else {
            continue;
        };
        let one = memory_of(pid);
        side.pss += one.pss;
        side.private_dirty += one.private_dirty;
    }
    Ok(memory)
}

/// The name in `stat` may hold anything; the fields follow the last bracket.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn is_below(groups: &str, group: &str) -> bool {
    groups.lines().any(|line| {
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        path.split('/').any(|part| part == group)
    })
}

fn descends(pid: u32, ancestor: u32, parents: &HashMap<u32, u32>) -> bool {
    let mut at = pid;
    // The chain was read while it changed: it could even be a circle.
    for _ in 0..parents.len() {
        if at == ancestor {
            return true;
        }
        match parents.get(&at) {
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    false
}

fn memory_of(pid: u32) -> ProcessMemory {
    let path = Path::new("/proc")
        .join(pid.to_string())
        .join("smaps_rollup");
    // It may have ended; the kernel's own threads have none.
    let text = fs::read_to_string(path).unwrap_or_default();
    ProcessMemory {
        pss: kibibytes(&text, "Pss:").unwrap_or_default(),
        private_dirty: kibibytes(&text, "Private_Dirty:").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_parent() {
        assert_eq!(parent_of("7 (a) b) c) S 3 7 7 0"), Some(3));
        assert_eq!(parent_of("7 (x"), None);
    }

    #[test]
    fn only_whole_parts_of_a_path_are_a_group() {
        let groups = "3:memory:/soulbox-1/i1\n0::/init\n";
        assert!(is_below(groups, "soulbox-1"));
        assert!(!is_below(groups, "soulbox"));
    }

    #[test]
    fn descent_ends_at_a_gap_and_at_a_circle() {
        let parents = HashMap::from([(2, 1), (3, 2), (5, 6), (6, 5)]);
        assert!(descends(3, 1, &parents));
        assert!(!descends(3, 4, &parents));
        assert!(!descends(5, 1, &parents));
    }

    #[test]
    fn this_process_weighs_something() {
        let memory = measure(std::process::id(), "soulbox-none").unwrap();
        assert!(memory.server.pss > 0);
        assert_eq!(memory.sandboxes, ProcessMemory::default());
    }
}
