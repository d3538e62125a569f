//! One sandbox's group: joining, the view from inside, removal.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Controller, Error, Result, Version,
    discover::Hierarchy,
    file,
    manager::{Shared, child_names, remove_empty},
};

/// Groups that a sandbox could nest: more than it ever can, and a bound for the walk.
const DEEPEST: usize = 32;

/// A handle; the group may or may not be there. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cgroup {
    shared: Arc<Shared>,
    name: Option<String>,
}

impl Cgroup {
    pub(crate) fn new(shared: Arc<Shared>, name: Option<&str>) -> Self {
        Self {
            shared,
            name: name.map(ToOwned::to_owned),
        }
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Files to write a pid (or `0` for oneself) to, in order to join: one per hierarchy.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.hierarchies()
            .filter(|h| h.is_used())
            .map(|h| self.directory(h).join("cgroup.procs"))
            .collect()
    }

    /// The directory for `CLONE_INTO_CGROUP`, when all controllers are in the one v2 tree.
    pub fn v2_directory(&self) -> Option<PathBuf> {
        match &self.shared.hierarchies[..] {
            [only] if only.version == Version::V2 && self.name.is_some() => {
                Some(self.directory(only))
            }
            _ => None,
        }
    }

    /// What to show (read-only) inside below `/sys/fs/cgroup`: directory here, place there.
    /// Language runtimes read their memory and cpu limits from it.
    pub fn view(&self) -> Vec<(PathBuf, PathBuf)> {
        if let Some(dir) = self.v2_directory() {
            return vec![(dir, PathBuf::new())];
        }
        let shown = [
            Controller::Memory,
            Controller::Cpu,
            Controller::Cpuacct,
            Controller::Pids,
        ];
        shown
            .into_iter()
            .filter_map(|c| Some((self.directory_of(c)?, PathBuf::from(c.to_string()))))
            .collect()
    }

    /// Asks the kernel to take back what the group can do without: page cache and, where there is
    /// swap, idle memory. Takes as long as that takes; meant for frozen groups.
    pub fn reclaim_memory(&self) -> Result<()> {
        let Some(hierarchy) = self.hierarchy_of(Controller::Memory) else {
            return Ok(());
        };
        let directory = self.directory(hierarchy);
        let asked = match hierarchy.version {
            Version::V1 => file::write_if_present(&directory.join("memory.force_empty"), "0"),
            // More than there is: the kernel gives what it can and answers EAGAIN for the rest.
            Version::V2 => file::write_if_present(&directory.join("memory.reclaim"), "1T"),
        };
        match asked {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::WouldBlock => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Whether the group is there in at least one hierarchy.
    pub fn exists(&self) -> bool {
        self.hierarchies().any(|h| self.directory(h).is_dir())
    }

    /// Processes in the group, as this process numbers them. Empty when it is not there.
    pub fn pids(&self) -> Result<Vec<u32>> {
        // A start that was cut short may have joined some hierarchies only.
        let mut pids = Vec::new();
        for hierarchy in self.hierarchies() {
            match file::read(&self.directory(hierarchy).join("cgroup.procs")) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Removes the group from every hierarchy. The kernel refuses for a moment after the last
    /// process was killed; that is waited for, up to `timeout`. Fine when it is gone already.
    pub fn remove(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        for hierarchy in self.hierarchies() {
            let dir = self.directory(hierarchy);
            let mut pause = Duration::from_micros(200);
            loop {
                match remove_tree(&dir, DEEPEST) {
                    Err(error) if error.errno() == Some(libc::EBUSY) => {
                        if start.elapsed() >= timeout {
                            return Err(self.timed_out("removed", timeout));
                        }
                        std::thread::sleep(pause);
                        pause = (pause * 2).min(Duration::from_millis(10));
                    }
                    other => break other?,
                }
            }
        }
        Ok(())
    }

    pub(crate) fn directory(&self, hierarchy: &Hierarchy) -> PathBuf {
        self.shared.parent_of(hierarchy).join(self.name())
    }

    /// Empty for the handle to no group: without a name `directory` would be the parent itself.
    pub(crate) fn hierarchies(&self) -> impl Iterator<Item = &Hierarchy> {
        self.shared
            .hierarchies
            .iter()
            .filter(|_| self.name.is_some())
    }

    pub(crate) fn hierarchy_of(&self, controller: Controller) -> Option<&Hierarchy> {
        self.hierarchies().find(|h| h.has(controller))
    }

    pub(crate) fn directory_of(&self, controller: Controller) -> Option<PathBuf> {
        self.hierarchy_of(controller).map(|h| self.directory(h))
    }

    pub(crate) fn timed_out(&self, what: &'static str, limit: Duration) -> Error {
        Error::Timeout {
            name: self.name().to_owned(),
            what,
            limit,
        }
    }
}

/// Children first: a sandbox that was given its own subtree may have made groups in it.
fn remove_tree(dir: &Path, depth: usize) -> Result<()> {
    match remove_empty(dir) {
        Err(error) if error.errno() == Some(libc::EBUSY) && depth > 0 => {
            for child in child_names(dir)? {
                remove_tree(&dir.join(child), depth - 1)?;
            }
            remove_empty(dir)
        }
        other => other,
    }
}
