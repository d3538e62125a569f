//! Where this program runs, as far as it decides what fails: in a container or on a machine, under
//! which security module, on which file system.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The environment of this process: container, security modules, file system. `detect` reads it;
/// what cannot be found out is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `docker`, `podman`, `lxc`, `wsl`, …
    pub container: Option<String>,
    /// `None`: all ids of the machine.
    pub mapped_ids: Option<u64>,
    /// `user.max_user_namespaces`
    pub max_user_namespaces: Option<u64>,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_restricts: bool,
    pub selinux_enforces: bool,
    /// Of the data folder, or of what will hold it.
    pub file_system: String,
    pub mount_options: Vec<String>,
    /// Where that is mounted: `/` on most machines.
    pub mount_point: String,
}

impl Environment {
    pub fn detect(data_dir: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let is_one = |path: &str| read(path).trim() == "1";
        let mountinfo = read("/proc/self/mountinfo");
        let mount = mount_of(&mountinfo, &real(data_dir));
        let mount = mount.unwrap_or_default();
        Self {
            container: container(&mountinfo),
            mapped_ids: mapped_ids(&read("/proc/self/uid_map")),
            max_user_namespaces: read("/proc/sys/user/max_user_namespaces")
                .trim()
                .parse()
                .ok(),
            apparmor_restricts: is_one("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            selinux_enforces: is_one("/sys/fs/selinux/enforce"),
            file_system: mount.kind,
            mount_options: mount.options,
            mount_point: mount.point,
        }
    }

    /// The command that changes an option of the data folder's mount.
    pub(crate) fn remount(&self, option: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
        let point = &self.mount_point;
        if point.chars().all(plain) {
            format!("mount -o remount,{option} {point}")
        } else {
            format!(
                "mount -o remount,{option} '{}'",
                point.replace('\'', r"'\''")
            )
        }
    }

    /// What to do about a data folder that cannot be written to.
    pub fn writable(&self) -> String {
        let elsewhere = "choose another folder with --data-dir";
        if self.is_mounted("ro") {
            let remount = self.remount("rw");
            format!("it is mounted read-only: make it writable (`{remount}`), or {elsewhere}")
        } else {
            format!(
                "make it writable for this user (its owner, its mode, `chattr -i`), or {elsewhere}"
            )
        }
    }

    pub(crate) fn is_mounted(&self, option: &str) -> bool {
        self.mount_options.iter().any(|each| each == option)
    }
}

/// Without links, as far as it is there yet.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| {
        let real = fs::canonicalize(above).ok()?;
        Some(real.join(path.strip_prefix(above).ok()?))
    });
    there.unwrap_or(path)
}

fn container(mountinfo: &str) -> Option<String> {
    let environment = fs::read("/proc/1/environ").unwrap_or_default();
    let named = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(b"container="));
    if let Some(name) = named.filter(|name| !name.is_empty()) {
        return Some(String::from_utf8_lossy(name).into_owned());
    }
    // Machines that were made of an image have the file as well.
    let layered = mount_of(mountinfo, Path::new("/")).is_some_and(|mount| mount.kind == "overlay");
    if layered && Path::new("/.dockerenv").exists() {
        return Some("docker".to_owned());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release
        .to_lowercase()
        .contains("microsoft")
        .then(|| "wsl".to_owned())
}

/// How many ids there are, unless it is all of them.
fn mapped_ids(map: &str) -> Option<u64> {
    let counts = map.lines().filter_map(|line| {
        let count = line.split_ascii_whitespace().nth(2)?;
        count.parse::<u64>().ok()
    });
    let all: u64 = counts.sum();
    (all > 0 && all < u64::from(u32::MAX)).then_some(all)
}

#[derive(Debug, Default)]
struct Mount {
    point: String,
    kind: String,
    options: Vec<String>,
}

/// The mount that a path is on, or would be.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let mut before = before.split(' ').skip(4);
        let (Some(point), Some(options)) = (before.next(), before.next()) else {
            continue;
        };
        let mut after = after.split(' ');
        let (kind, of_super) = (after.next().unwrap_or_default(), after.nth(1));
        // What is mounted later lies on top.
        let depth = Path::new(point).components().count();
        if path.starts_with(point) && best.as_ref().is_none_or(|(found, ..)| *found <= depth) {
            let all = options.split(',').chain(of_super.unwrap_or("").split(','));
            let mount = Mount {
                point: point.to_owned(),
                kind: kind.to_owned(),
                options: all.map(ToOwned::to_owned).collect(),
            };
            best = Some((depth, mount));
        }
    }
    best.map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_folder_is_the_deepest_and_topmost() {
        let text = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:5 / /var rw,noexec - xfs /dev/sdb rw
31 22 0:6 / /var rw,noexec - btrfs /dev/sdc ro
32 22 0:7 / /variety rw - tmpfs tmpfs rw
";
        let of = |path: &str| mount_of(text, Path::new(path)).unwrap();
        assert_eq!(of("/srv/soulbox").kind, "ext4");
        let Mount {
            point,
            kind,
            options,
        } = of("/var/lib/soulbox");
        assert_eq!((point.as_str(), kind.as_str()), ("/var", "btrfs"));
        assert!(options.contains(&"noexec".to_owned()) && options.contains(&"ro".to_owned()));
    }

    #[test]
    fn whoever_is_to_mount_again_is_told_what() {
        let mut environment = Environment {
            mount_options: vec!["ro".to_owned()],
            mount_point: "/srv/my data".to_owned(),
            ..Environment::default()
        };
        let said = environment.writable();
        assert!(
            said.contains("mount -o remount,rw '/srv/my data'"),
            "{said}"
        );
        environment.mount_options.clear();
        let said = environment.writable();
        assert!(!said.contains("remount"), "it is writable already: {said}");
        environment.mount_point = "/var".to_owned();
        assert_eq!(environment.remount("exec"), "mount -o remount,exec /var");
    }

    #[test]
    fn links_and_folders_that_are_yet_to_be_made_lead_to_the_real_mount() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        assert_eq!(real(&link.join("not/yet")), Path::new("/proc/not/yet"));
        assert!(real(Path::new("relative")).is_absolute());
    }

    #[test]
    fn few_ids_are_told_and_all_of_them_are_not() {
        assert_eq!(mapped_ids("         0          0 4294967295\n"), None);
        assert_eq!(mapped_ids("0 100000 65536\n"), Some(65_536));
        assert_eq!(mapped_ids(""), None);
    }
}
