//! Which hierarchies are mounted and what they control.
//!
//! v1 mounts one hierarchy per controller (or a few together), v2 a single one. A machine may have
//! both ("hybrid"): the v2 tree there usually controls nothing and is then left alone.

use std::{
    ffi::OsString,
    fmt,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use crate::{Result, file};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Cpu,
    Memory,
    Pids,
    /// Nothing is limited by it. On v2 the kernel writes dirty pages out for each group apart
    /// where it has this one.
    Io,
    Freezer,
    Cpuacct,
}

impl Controller {
    pub(crate) const REQUIRED: [Self; 5] = [
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::Freezer,
        Self::Cpuacct,
    ];

    fn from_v1(name: &str) -> Option<Self> {
        Some(match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "pids" => Self::Pids,
            "blkio" => Self::Io,
            "freezer" => Self::Freezer,
            "cpuacct" => Self::Cpuacct,
            _ => return None,
        })
    }

    fn from_v2(name: &str) -> Option<Self> {
        Some(match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "pids" => Self::Pids,
            "io" => Self::Io,
            _ => return None,
        })
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Io => "io",
            Self::Freezer => "freezer",
            Self::Cpuacct => "cpuacct",
        })
    }
}

/// One mounted tree of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    pub(crate) mount: PathBuf,
    pub(crate) controllers: Vec<Controller>,
}

impl Hierarchy {
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// `blkio` of v1 would do nothing for a sandbox, and making, joining and removing a group in
    /// it is a sixth of the work for all of them. Earlier versions did: theirs are still removed.
    pub(crate) fn is_used(&self) -> bool {
        self.version == Version::V2 || self.controllers != [Controller::Io]
    }
}

/// The hierarchies of this machine, no controller twice.
pub(crate) fn discover() -> Result<Vec<Hierarchy>> {
    from_mountinfo(&file::read(Path::new("/proc/self/mountinfo"))?)
}

pub(crate) fn from_mountinfo(text: &str) -> Result<Vec<Hierarchy>> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in text.lines().filter_map(Mount::parse) {
        let hierarchy = match mount.kind {
            "cgroup" => v1(&mount),
            "cgroup2" => v2(&mount)?,
            _ => continue,
        };
        let Some(mut hierarchy) = hierarchy else {
            continue;
        };
        // The same tree may be mounted twice; the first one serves.
        hierarchy
            .controllers
            .retain(|c| !found.iter().any(|other| other.has(*c)));
        if !hierarchy.controllers.is_empty() {
            found.push(hierarchy);
        }
    }
    Ok(found)
}

fn v1(mount: &Mount<'_>) -> Option<Hierarchy> {
    let controllers: Vec<_> = mount
        .options
        .split(',')
        .filter_map(Controller::from_v1)
        .collect();
    (!controllers.is_empty()).then(|| Hierarchy {
        version: Version::V1,
        mount: mount.point(),
        controllers,
    })
}

fn v2(mount: &Mount<'_>) -> Result<Option<Hierarchy>> {
    let point = mount.point();
    let text = file::read(&point.join("cgroup.controllers"))?;
    let mut controllers: Vec<_> = text
        .split_ascii_whitespace()
        .filter_map(Controller::from_v2)
        .collect();
    if controllers.is_empty() {
        return Ok(None);
    }
    // Part of every v2 group: cgroup.freeze, and cpu.stat even without the cpu controller.
    controllers.extend([Controller::Freezer, Controller::Cpuacct]);
    Ok(Some(Hierarchy {
        version: Version::V2,
        mount: point,
        controllers,
    }))
}

/// The parts of a line of mountinfo that matter here.
struct Mount<'a> {
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        Some(Self {
            point: before.split(' ').nth(4)?,
            kind: after.next()?,
            options: after.nth(1)?,
        })
    }

    /// The kernel writes space, tab, newline and backslash as `\ooo`.
    fn point(&self) -> PathBuf {
        let mut bytes = Vec::with_capacity(self.point.len());
        let mut rest = self.point.as_bytes();
        while let [first, tail @ ..] = rest {
            if let [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] = rest
            {
                bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = tail;
            } else {
                bytes.push(*first);
                rest = tail;
            }
        }
        PathBuf::from(OsString::from_vec(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:32 / /mnt/again rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
";

    #[test]
    fn v1_hierarchies_are_told_by_their_mount_options() {
        let found = from_mountinfo(V1).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].mount, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found[0].controllers, [Controller::Cpu, Controller::Cpuacct]);
        assert_eq!(found[1].controllers, [Controller::Memory]);
        assert!(found.iter().all(|h| h.version == Version::V1));
    }

    #[test]
    fn a_v2_tree_without_controllers_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let line = format!(
            "41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n",
            dir.path().display()
        );
        fs_err::write(dir.path().join("cgroup.controllers"), "\n").unwrap();
        assert_eq!(from_mountinfo(&line).unwrap(), []);
        fs_err::write(dir.path().join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        let found = from_mountinfo(&line).unwrap();
        assert_eq!(found[0].version, Version::V2);
        assert!(found[0].has(Controller::Memory) && found[0].has(Controller::Freezer));
        assert!(!found[0].has(Controller::Pids));
    }

    #[test]
    fn escaped_mount_points_are_read_back() {
        let line = r"9 1 0:1 / /a\040b\134c rw - cgroup x rw,pids";
        assert_eq!(from_mountinfo(line).unwrap()[0].mount, Path::new(r"/a b\c"));
    }
}
