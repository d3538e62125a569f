//! The parent group, creation and listing.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use crate::{
    Cgroup, CgroupLimits, Controller, Error, Result, SliceLimits, Version,
    discover::{self, Hierarchy},
    file::{self, io_error},
};

/// Where processes move that would keep the root of a v2 tree busy.
const LEAF: &str = "soulbox-server";
/// How often they are moved, should they start others meanwhile.
const ATTEMPTS: usize = 10;

/// One parent group in every usable hierarchy, and the groups below it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Manager {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) hierarchies: Vec<Hierarchy>,
    parent: String,
    controllers: Vec<Controller>,
    /// What was asked for last, to be set again when the parent has to be made again.
    pub(crate) slice_limits: Mutex<Option<SliceLimits>>,
}

impl Shared {
    pub(crate) fn parent_of(&self, hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.mount.join(&self.parent)
    }

    /// Those in which groups are made.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Hierarchy> {
        self.hierarchies.iter().filter(|h| h.is_used())
    }
}

impl Manager {
    /// Finds the mounted controllers and makes the group `parent` in each hierarchy.
    /// Fails when limits on cpu, memory or processes, freezing or accounting would be missing.
    pub fn open(parent: &str) -> Result<Self> {
        Self::with_hierarchies(parent, discover::discover()?)
    }

    pub(crate) fn with_hierarchies(parent: &str, hierarchies: Vec<Hierarchy>) -> Result<Self> {
        check_name(parent)?;
        let mut controllers: Vec<_> = hierarchies
            .iter()
            .filter(|h| h.is_used())
            .flat_map(|h| h.controllers.iter().copied())
            .collect();
        controllers.sort_unstable();
        let missing: Vec<_> = Controller::REQUIRED
            .into_iter()
            .filter(|c| !controllers.contains(c))
            .collect();
        if !missing.is_empty() {
            return Err(Error::Missing { missing });
        }
        let shared = Shared {
            hierarchies,
            parent: parent.to_owned(),
            controllers,
            slice_limits: Mutex::new(None),
        };
        for hierarchy in shared.used() {
            make_parent(hierarchy, &shared.parent_of(hierarchy))?;
        }
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// [`Version::V1`] as soon as one of the controllers is on v1.
    pub fn version(&self) -> Version {
        if self
            .shared
            .hierarchies
            .iter()
            .any(|h| h.version == Version::V1)
        {
            Version::V1
        } else {
            Version::V2
        }
    }

    pub fn controllers(&self) -> &[Controller] {
        &self.shared.controllers
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn hierarchies(&self) -> &[Hierarchy] {
        &self.shared.hierarchies
    }

    /// Makes the group, or sets the limits of one that is there.
    pub fn create(&self, name: &str, limits: &CgroupLimits) -> Result<Cgroup> {
        check_name(name)?;
        let group = self.existing(name);
        for hierarchy in self.shared.used() {
            let dir = group.directory(hierarchy);
            make_directory(&dir)?;
            match limits.apply(hierarchy, &dir) {
                // systemd switches off, on a reload, what it did not switch on in the root itself.
                Err(error) if error.is_not_found() && hierarchy.version == Version::V2 => {
                    make_parent(hierarchy, &self.shared.parent_of(hierarchy))?;
                    self.restore_slice_limits();
                    limits.apply(hierarchy, &dir)?;
                }
                other => other?,
            }
        }
        Ok(group)
    }

    /// A handle to a group that may or may not be there. No I/O. A name that [`Self::create`]
    /// would refuse gives a handle to no group at all.
    pub fn existing(&self, name: &str) -> Cgroup {
        Cgroup::new(
            Arc::clone(&self.shared),
            check_name(name).is_ok().then_some(name),
        )
    }

    /// The groups below the parent, in any hierarchy: after a crash one may be left in some only.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for hierarchy in &self.shared.hierarchies {
            names.extend(child_names(&self.shared.parent_of(hierarchy))?);
        }
        Ok(names.into_iter().collect())
    }

    /// Removes the parent groups. Fails (and changes nothing more) while a group is below them.
    pub fn remove_parent(&self) -> Result<()> {
        self.shared
            .hierarchies
            .iter()
            .try_for_each(|h| remove_empty(&self.shared.parent_of(h)))
    }
}

/// Names become paths: nothing that leads elsewhere, nor the name of a control file.
fn check_name(name: &str) -> Result<()> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !name.is_empty() && name.len() <= 200 && name.bytes().all(valid) {
        Ok(())
    } else {
        Err(Error::InvalidName {
            name: name.chars().take(64).collect(),
        })
    }
}

fn make_parent(hierarchy: &Hierarchy, parent: &Path) -> Result<()> {
    match hierarchy.version {
        Version::V1 => {
            make_directory(parent)?;
            if hierarchy.has(Controller::Memory) {
                // The default since 5.11; refused with EBUSY when groups are below already.
                let path = parent.join("memory.use_hierarchy");
                match file::write_if_present(&path, "1") {
                    Err(error) if error.errno() == Some(libc::EBUSY) => {}
                    other => drop(other?),
                }
            }
            Ok(())
        }
        Version::V2 => {
            enable_controllers(hierarchy, &hierarchy.mount)?;
            make_directory(parent)?;
            enable_controllers(hierarchy, parent)
        }
    }
}

/// Hands the controllers of a v2 group down to its children.
fn enable_controllers(hierarchy: &Hierarchy, dir: &Path) -> Result<()> {
    let path = dir.join("cgroup.subtree_control");
    let enabled = file::read(&path)?;
    let wanted: Vec<_> = hierarchy
        .controllers
        .iter()
        .filter(|c| !matches!(c, Controller::Freezer | Controller::Cpuacct))
        .map(ToString::to_string)
        .filter(|name| !enabled.split_ascii_whitespace().any(|have| have == name))
        .map(|name| format!("+{name}"))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let text = wanted.join(" ");
    match file::write(&path, &text) {
        // In a container the visible root is an ordinary group, and one with processes may not
        // hand controllers down. They may start others while they are moved.
        Err(mut error) => {
            for _ in 0..ATTEMPTS {
                if error.errno() != Some(libc::EBUSY) {
                    break;
                }
                empty_into_leaf(dir)?;
                match file::write(&path, &text) {
                    Ok(()) => return Ok(()),
                    Err(again) => error = again,
                }
            }
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

fn empty_into_leaf(dir: &Path) -> Result<()> {
    let leaf = dir.join(LEAF);
    make_directory(&leaf)?;
    let target = leaf.join("cgroup.procs");
    file::write(&target, "0")?;
    for pid in file::read(&dir.join("cgroup.procs"))?.lines() {
        match file::write(&target, pid) {
            // Gone meanwhile.
            Err(error) if error.errno() == Some(libc::ESRCH) => {}
            other => other?,
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(|source| io_error("make the control group", path, source)),
    }
}

/// Removes a group without processes and children; fine when it is gone already.
pub(crate) fn remove_empty(path: &Path) -> Result<()> {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| io_error("remove the control group", path, source)),
    }
}

/// Names of the groups directly below one; none when it is not there.
pub(crate) fn child_names(path: &Path) -> Result<Vec<String>> {
    let failed = |source| io_error("list the control group", path, source);
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
