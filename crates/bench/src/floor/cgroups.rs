//! The groups that a daemon leaves behind when it is killed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The kernel lets go of a group some moments after its last process.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Removes the groups of this name and all below them, in each hierarchy of the machine.
pub(super) fn remove(name: &str) -> io::Result<()> {
    remove_below(Path::new("/sys/fs/cgroup"), name)
}

fn remove_below(root: &Path, name: &str) -> io::Result<()> {
    let mut groups = vec![root.join(name)];
    for hierarchy in fs::read_dir(root)? {
        groups.push(hierarchy?.path().join(name));
    }
    let begun = Instant::now();
    loop {
        let result = groups.iter().try_for_each(|group| remove_tree(group));
        match result {
            Err(_) if begun.elapsed() < LIMIT => std::thread::sleep(PAUSE),
            _ => return result,
        }
    }
}

/// A group's files go with it; only the groups in it are in the way.
fn remove_tree(group: &Path) -> io::Result<()> {
    let mut inner: Vec<PathBuf> = Vec::new();
    match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => {
            for entry in entries? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    inner.push(entry.path());
                }
            }
        }
    }
    inner.iter().try_for_each(|below| remove_tree(below))?;
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_removed_in_every_hierarchy_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["bench-1/a/b", "memory/bench-1/c", "memory/bench-2", "cpu"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        remove_below(root.path(), "bench-1").unwrap();
        assert!(!path("bench-1").exists() && !path("memory/bench-1").exists());
        assert!(path("memory/bench-2").exists() && path("cpu").exists());
    }
}
