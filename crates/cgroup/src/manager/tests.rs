//! Against trees of plain files laid out like the kernel's: v2 and, where the words differ, v1.

use std::time::Duration;

use super::*;

const LIMITS: CgroupLimits = CgroupLimits {
    cpu_millis: 1500,
    cpu_weight: CgroupLimits::USUAL_CPU_WEIGHT,
    memory_bytes: 512 << 20,
    swap_bytes: 0,
    pids: 64,
};

/// One that yields, as a sandbox that nobody uses yet.
const YIELDING: CgroupLimits = CgroupLimits {
    cpu_millis: 500,
    cpu_weight: 10,
    ..LIMITS
};

struct Fake {
    dir: tempfile::TempDir,
    version: Version,
}

impl Fake {
    fn v2() -> Self {
        let fake = Self {
            dir: tempfile::tempdir().unwrap(),
            version: Version::V2,
        };
        for group in ["", "soulbox-t/", "soulbox-t/one/"] {
            fs_err::create_dir_all(fake.dir.path().join(group)).unwrap();
            fake.put(&format!("{group}cgroup.subtree_control"), "cpuset memory\n");
            fake.put(&format!("{group}cgroup.procs"), "");
        }
        let files = [
            "cpu.max",
            "cpu.weight",
            "memory.max",
            "memory.swap.max",
            "memory.oom.group",
            "pids.max",
            "cgroup.freeze",
        ];
        for file in files {
            fake.put(&format!("soulbox-t/one/{file}"), "");
        }
        fake
    }

    /// All controllers in one hierarchy, which v1 allows too.
    fn v1() -> Self {
        let fake = Self {
            dir: tempfile::tempdir().unwrap(),
            version: Version::V1,
        };
        let group = "soulbox-t/one";
        fs_err::create_dir_all(fake.dir.path().join(group)).unwrap();
        let files = [
            "cpu.cfs_period_us",
            "cpu.cfs_quota_us",
            "cpu.shares",
            "memory.limit_in_bytes",
            "pids.max",
        ];
        for file in files {
            fake.put(&format!("{group}/{file}"), "");
        }
        fake
    }

    fn put(&self, path: &str, text: &str) {
        fs_err::write(self.dir.path().join(path), text).unwrap();
    }

    fn get(&self, path: &str) -> String {
        fs_err::read_to_string(self.dir.path().join(path)).unwrap()
    }

    fn manager(&self) -> Manager {
        let controllers = vec![
            Controller::Cpu,
            Controller::Memory,
            Controller::Pids,
            Controller::Io,
            Controller::Freezer,
            Controller::Cpuacct,
        ];
        let mount = self.dir.path().to_owned();
        let hierarchy = Hierarchy {
            version: self.version,
            mount,
            controllers,
        };
        Manager::with_hierarchies("soulbox-t", vec![hierarchy]).unwrap()
    }
}

#[test]
fn opening_hands_down_the_controllers_that_are_not_yet_handed_down() {
    let fake = Fake::v2();
    let manager = fake.manager();
    assert_eq!(manager.version(), Version::V2);
    assert_eq!(fake.get("cgroup.subtree_control"), "+cpu +pids +io");
    assert_eq!(
        fake.get("soulbox-t/cgroup.subtree_control"),
        "+cpu +pids +io"
    );
}

#[test]
fn limits_are_written_in_the_words_of_v2() {
    let fake = Fake::v2();
    let group = fake.manager().create("one", &LIMITS).unwrap();
    assert_eq!(fake.get("soulbox-t/one/cpu.max"), "150000 100000");
    assert_eq!(fake.get("soulbox-t/one/memory.max"), "536870912");
    assert_eq!(fake.get("soulbox-t/one/memory.swap.max"), "0");
    assert_eq!(fake.get("soulbox-t/one/memory.oom.group"), "0");
    assert_eq!(fake.get("soulbox-t/one/pids.max"), "64");
    let dir = fake.dir.path().join("soulbox-t/one");
    assert_eq!(group.v2_directory(), Some(dir.clone()));
    assert_eq!(group.view(), [(dir.clone(), PathBuf::new())]);
    assert_eq!(group.procs_files(), [dir.join("cgroup.procs")]);
}

#[test]
fn a_group_that_yields_has_a_lower_weight_and_quota_until_its_limits_are_replaced() {
    let fake = Fake::v2();
    let group = fake.manager().create("one", &YIELDING).unwrap();
    let cpu = || ["cpu.max", "cpu.weight"].map(|file| fake.get(&format!("soulbox-t/one/{file}")));
    assert_eq!(cpu(), ["50000 100000", "10"]);
    fake.put("soulbox-t/one/memory.current", "4096\n");
    group.set_limits(&LIMITS).unwrap();
    assert_eq!(cpu(), ["150000 100000", "100"]);

    let fake = Fake::v1();
    let group = fake.manager().create("one", &YIELDING).unwrap();
    let cpu = || {
        let files = ["cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"];
        files.map(|file| fake.get(&format!("soulbox-t/one/{file}")))
    };
    assert_eq!(cpu(), ["100000", "50000", "102"]);
    group.set_limits(&LIMITS).unwrap();
    assert_eq!(cpu(), ["100000", "150000", "1024"]);
}

#[test]
fn freezing_waits_for_the_event_and_thaws_when_it_does_not_come() {
    let fake = Fake::v2();
    let group = fake.manager().existing("one");
    fake.put("soulbox-t/one/cgroup.events", "populated 1\nfrozen 1\n");
    group.freeze(Duration::ZERO).unwrap();
    assert_eq!(fake.get("soulbox-t/one/cgroup.freeze"), "1");
    fake.put("soulbox-t/one/cgroup.events", "populated 1\nfrozen 0\n");
    let error = group.freeze(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(fake.get("soulbox-t/one/cgroup.freeze"), "0");
}

#[test]
fn use_is_read_from_the_files_of_v2() {
    let fake = Fake::v2();
    fake.put(
        "soulbox-t/one/cpu.stat",
        "usage_usec 1234\nuser_usec 1000\n",
    );
    fake.put("soulbox-t/one/memory.current", "4096\n");
    fake.put(
        "soulbox-t/one/memory.stat",
        "anon 1\nfile 2048\nfile_mapped 7\n",
    );
    fake.put("soulbox-t/one/memory.events", "low 0\noom 3\noom_kill 2\n");
    fake.put("soulbox-t/one/pids.current", "5\n");
    let group = fake.manager().existing("one");
    let expected = crate::CgroupStats {
        cpu_micros: 1234,
        memory_bytes: 4096,
        memory_cache_bytes: 2048,
        memory_peak_bytes: None,
        pids: 5,
        oom_kills: 2,
    };
    assert_eq!(group.stats().unwrap(), expected, "before Linux 5.19");
    fake.put("soulbox-t/one/memory.peak", "8192\n");
    assert_eq!(group.stats().unwrap().memory_peak_bytes, Some(8192));
}

#[test]
fn a_slices_limit_is_written_in_the_words_of_v2_and_never_below_what_is_in_use() {
    let fake = Fake::v2();
    for file in ["memory.max", "pids.max", "cpu.weight"] {
        fake.put(&format!("soulbox-t/{file}"), "max\n");
    }
    fake.put("soulbox-t/memory.current", "700\n");
    fake.put(
        "soulbox-t/memory.stat",
        "anon 400\ninactive_file 100\nactive_file 200\n",
    );
    fake.put("soulbox-t/pids.current", "12\n");
    let manager = fake.manager();
    let mut slice_limits = crate::SliceLimits {
        memory_bytes: 500,
        pids: 1000,
        cpu_weight: 50,
    };
    assert!(manager.set_slice(&slice_limits).is_empty());
    assert_eq!(fake.get("soulbox-t/memory.max"), "500");
    assert_eq!(fake.get("soulbox-t/pids.max"), "1000");
    assert_eq!(fake.get("soulbox-t/cpu.weight"), "50");
    let used = |exact_from| manager.slice_use(exact_from).unwrap().memory_bytes;
    assert_eq!((used(800), used(700)), (700, 400));
    assert_eq!(manager.slice_use(0).unwrap().pids, 12);

    slice_limits.memory_bytes = 300;
    let refused = manager.set_slice(&slice_limits);
    assert!(
        matches!(refused[..], [Error::MemoryInUse { used: 400, .. }]),
        "{refused:?}"
    );
    assert_eq!(fake.get("soulbox-t/memory.max"), "500");
}

#[test]
fn a_container_has_a_ceiling_and_a_machine_has_none() {
    let fake = Fake::v2();
    let manager = fake.manager();
    assert_eq!(manager.memory_ceiling(), None);
    fake.put("memory.max", "max\n");
    fake.put("pids.max", "max\n");
    fake.put("pids.current", "3\n");
    assert_eq!(manager.memory_ceiling(), None);
    assert_eq!(manager.pids_ceiling(), None);
    fake.put("memory.max", "4096\n");
    fake.put("memory.current", "1024\n");
    fake.put("memory.stat", "inactive_file 24\n");
    fake.put("pids.max", "100\n");
    let ceiling = |used, limit| Some(crate::Ceiling { used, limit });
    assert_eq!(manager.memory_ceiling(), ceiling(1000, 4096));
    assert_eq!(manager.pids_ceiling(), ceiling(3, 100));
}

#[test]
fn names_are_the_directories_below_the_parent() {
    let fake = Fake::v2();
    assert_eq!(fake.manager().names().unwrap(), ["one"]);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let fake = Fake::v2();
    let manager = fake.manager();
    for bad in [
        "",
        "..",
        ".",
        "a/b",
        "cgroup.procs",
        "a\0b",
        &"x".repeat(300),
    ] {
        assert!(
            matches!(manager.create(bad, &LIMITS), Err(Error::InvalidName { .. })),
            "{bad:?}"
        );
        let handle = manager.existing(bad);
        assert!(handle.procs_files().is_empty() && handle.v2_directory().is_none());
        assert!(handle.pids().unwrap().is_empty());
        handle.remove(Duration::ZERO).unwrap();
    }
    assert!(fake.dir.path().join("soulbox-t/one").exists());
}

#[test]
fn a_machine_without_a_needed_controller_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchy = Hierarchy {
        version: Version::V1,
        mount: dir.path().to_owned(),
        controllers: vec![Controller::Cpu, Controller::Cpuacct, Controller::Freezer],
    };
    let error = Manager::with_hierarchies("soulbox-t", vec![hierarchy]).unwrap_err();
    assert!(error.to_string().contains("for memory, pids;"), "{error}");
}

#[test]
fn no_group_is_made_in_blkio_of_v1_and_those_of_earlier_versions_are_removed() {
    let fake = Fake::v1();
    let blkio = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(blkio.path().join("soulbox-t/old")).unwrap();
    let mut hierarchies = fake.manager().hierarchies().to_vec();
    hierarchies.push(Hierarchy {
        version: Version::V1,
        mount: blkio.path().to_owned(),
        controllers: vec![Controller::Io],
    });
    hierarchies[0].controllers.retain(|c| *c != Controller::Io);
    let manager = Manager::with_hierarchies("soulbox-t", hierarchies).unwrap();
    let group = manager.create("one", &LIMITS).unwrap();
    assert_eq!(group.procs_files().len(), 1);
    assert!(!blkio.path().join("soulbox-t/one").exists());
    assert_eq!(manager.names().unwrap(), ["old", "one"]);
    manager.existing("old").remove(Duration::ZERO).unwrap();
    assert!(!blkio.path().join("soulbox-t/old").exists());
}
