//! Describes the machine of the run.

use std::{collections::BTreeMap, fs, path::Path};

use rustix::{fs::statfs, system::uname};

use crate::others::first_line_of;

/// Programs that are measured beside us, and how they are asked for their version.
const PROGRAMS: [(&str, &str); 4] = [
    ("docker", "--version"),
    ("dockerd", "--version"),
    ("bwrap", "--version"),
    ("runsc", "--version"),
];

/// What readers ask first; the rest follows by name.
const FIRST: [&str; 9] = [
    "cpu",
    "cores",
    "memory",
    "kernel",
    "system",
    "cgroup",
    "scratch",
    "load before",
    BUSY_BEFORE,
];

/// Of all cpu time, if it was looked at.
pub(crate) const BUSY_BEFORE: &str = "busy before";

/// The machine before a run: call it first, because the load is a part of it.
pub async fn machine(scratch: &Path) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut insert = |name: &str, value: Option<String>| {
        facts.insert(
            name.to_owned(),
            value.unwrap_or_else(|| "unknown".to_owned()),
        );
    };
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "));
    insert("load before", load);
    insert("cpu", field("/proc/cpuinfo", "model name"));
    let cores = std::thread::available_parallelism();
    insert("cores", cores.ok().map(|cores| cores.to_string()));
    insert(
        "memory",
        field("/proc/meminfo", "MemTotal").and_then(|text| gibibytes(&text)),
    );
    let kernel = uname();
    let kernel = [kernel.sysname(), kernel.release(), kernel.machine()];
    insert(
        "kernel",
        Some(
            kernel
                .map(|part| part.to_string_lossy().into_owned())
                .join(" "),
        ),
    );
    insert(
        "system",
        field_of("/etc/os-release", "PRETTY_NAME", '=')
            .map(|name| name.trim_matches('"').to_owned()),
    );
    insert(
        "scratch",
        statfs(scratch)
            .ok()
            .map(|answer| file_system(answer.f_type)),
    );
    insert("cgroup", Some(cgroup().to_owned()));
    for (name, argument) in PROGRAMS {
        let version = first_line_of(name, argument).await;
        insert(
            name,
            Some(version.unwrap_or_else(|| "not there".to_owned())),
        );
    }
    facts
}

/// In the order in which they are shown.
pub(super) fn in_order(facts: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    let place = |name: &str| FIRST.iter().position(|first| *first == name);
    let mut all: Vec<(&str, &str)> = facts
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    all.sort_by_key(|(name, _)| place(name).unwrap_or(FIRST.len()));
    all
}

fn field(file: &str, name: &str) -> Option<String> {
    field_of(file, name, ':')
}

fn field_of(file: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

/// `24682416 kB` as `23.5 GiB`.
fn gibibytes(kilobytes: &str) -> Option<String> {
    let number: f64 = kilobytes.split(' ').next()?.parse().ok()?;
    Some(format!("{:.1} GiB", number / f64::from(1 << 20)))
}

fn cgroup() -> &'static str {
    let exists = |path: &str| Path::new("/sys/fs/cgroup").join(path).exists();
    match (
        exists("cgroup.controllers"),
        exists("unified"),
        exists("memory"),
    ) {
        (true, _, _) => "v2",
        (false, true, _) => "v1 and v2 (hybrid)",
        (false, false, true) => "v1",
        (false, false, false) => "none",
    }
}

/// The magic numbers of `statfs`, from the kernel's `magic.h`.
fn file_system(magic: i64) -> String {
    match magic {
        0xEF53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x794C_7630 => "overlay".to_owned(),
        0x2FC1_2FC1 => "zfs".to_owned(),
        0xF2F5_2010 => "f2fs".to_owned(),
        0x6969 => "nfs".to_owned(),
        other => format!("file system {other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_machine_tells_what_a_reader_asks_first() {
        let facts = machine(&std::env::temp_dir()).await;
        for name in [
            "cpu",
            "cores",
            "memory",
            "kernel",
            "scratch",
            "cgroup",
            "load before",
            "docker",
        ] {
            let value = facts.get(name);
            assert!(
                value.is_some_and(|value| !value.is_empty()),
                "{name}: {value:?}"
            );
        }
        assert!(facts["kernel"].starts_with("Linux "), "{facts:?}");
        assert!(facts["memory"].ends_with("GiB"), "{facts:?}");
    }

    #[test]
    fn sizes_and_file_systems_have_names() {
        assert_eq!(gibibytes("24682416 kB").as_deref(), Some("23.5 GiB"));
        assert_eq!(gibibytes("many"), None);
        assert_eq!(file_system(0xEF53), "ext4");
        assert_eq!(file_system(0x1234), "file system 0x1234");
    }
}
