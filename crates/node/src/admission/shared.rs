//! What the kernel has one number of for the whole machine, whoever uses it.

use std::{fs, path::Path};

use super::Resource;

/// Kept for those that are here already, and for the host.
const KEPT_PART: u64 = 8;

/// Of each that this machine has: how many are used, and how many may be at a create. A sandbox
/// needs next to none of them when it starts; it must be able to get some later.
pub(super) fn levels() -> Vec<(Resource, u64, u64)> {
    levels_in(Path::new("/proc/sys"))
}

fn levels_in(settings: &Path) -> Vec<(Resource, u64, u64)> {
    // The first number, where there are several.
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(settings.join(name)).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    };
    let level = |resource, used: &str, most: &str, reserved: u64| {
        let (used, most) = (read(used)?, read(most)?.saturating_sub(reserved));
        Some((resource, used, most - most / KEPT_PART))
    };
    let for_the_host = read("kernel/pty/reserve").unwrap_or_default();
    [
        level(Resource::Files, "fs/file-nr", "fs/file-max", 0),
        level(
            Resource::Terminals,
            "kernel/pty/nr",
            "kernel/pty/max",
            for_the_host,
        ),
        level(
            Resource::Connections,
            "net/netfilter/nf_conntrack_count",
            "net/netfilter/nf_conntrack_max",
            0,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_what_is_shared_is_kept() {
        let settings = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("fs/file-nr", "950\t0\t2465780\n"),
            ("fs/file-max", "2465780\n"),
            ("kernel/pty/nr", "3072\n"),
            ("kernel/pty/max", "4096\n"),
            ("kernel/pty/reserve", "1024\n"),
        ] {
            let path = settings.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let found = levels_in(settings.path());
        let expected = [
            (Resource::Files, 950, 2_157_558),
            (Resource::Terminals, 3072, 2688),
        ];
        assert_eq!(found, expected, "a kernel without connections lacks none");
    }

    #[test]
    fn this_machine_tells_its_files_and_terminals() {
        let found = levels();
        for resource in [Resource::Files, Resource::Terminals] {
            let level = found.iter().find(|(found, ..)| *found == resource);
            assert!(
                level.is_some_and(|(_, used, bound)| used < bound),
                "{found:?}"
            );
        }
    }
}
