//! On the machine's own hierarchies, whichever version they are. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use soulbox_cgroup::{Cgroup, CgroupLimits, Manager, SliceLimits, Version};

/// Milliseconds on a machine; an emulated one is ten times slower, and a busy one slower again.
const SHORT: Duration = Duration::from_mins(1);
const LIMITS: CgroupLimits = CgroupLimits {
    cpu_millis: 500,
    cpu_weight: 50,
    memory_bytes: 64 << 20,
    swap_bytes: 0,
    pids: 32,
};

/// A parent of its own per test, gone afterwards whatever happened.
struct Machine {
    manager: Manager,
}

impl Machine {
    fn open(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return None;
        }
        let parent = format!("soulbox-test-{}-{name}", std::process::id());
        Some(Self {
            manager: Manager::open(&parent).unwrap(),
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for name in self.manager.names().unwrap() {
            let group = self.manager.existing(&name);
            group.kill_all().unwrap();
            group.remove(SHORT).unwrap();
        }
        self.manager.remove_parent().unwrap();
    }
}

/// A shell that first joins the group; returns once it has said `ready`.
fn run_in(group: &Cgroup, script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let joins: Vec<_> = group
        .procs_files()
        .iter()
        .map(|f| format!("echo 0 > '{}'", f.display()))
        .collect();
    let mut child = Command::new("bash")
        .args(["-c", &format!("{}; echo ready; {script}", joins.join("; "))])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < SHORT, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_group_can_be_made_twice_and_removed_twice() {
    let Some(machine) = Machine::open("twice") else {
        return;
    };
    let group = machine.manager.create("one", &LIMITS).unwrap();
    machine
        .manager
        .create(
            "one",
            &CgroupLimits {
                memory_bytes: 128 << 20,
                pids: 64,
                ..LIMITS
            },
        )
        .unwrap();
    machine.manager.create("one", &LIMITS).unwrap();
    assert_eq!(machine.manager.names().unwrap(), ["one"]);
    assert!(group.exists());
    group.remove(SHORT).unwrap();
    group.remove(SHORT).unwrap();
    assert!(!group.exists());
    assert!(group.pids().unwrap().is_empty());
    group.kill_all().unwrap();
    assert!(machine.manager.names().unwrap().is_empty());
}

#[test]
fn the_limits_stand_in_the_kernels_files() {
    let Some(machine) = Machine::open("limits") else {
        return;
    };
    let group = machine.manager.create("one", &LIMITS).unwrap();
    let view = group.view();
    let read = |target: &str, file: &str| {
        let (dir, _) = view
            .iter()
            .find(|(_, inside)| inside == Path::new(target))
            .unwrap();
        fs_err::read_to_string(dir.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    match machine.manager.version() {
        Version::V1 => {
            assert_eq!(
                read("memory", "memory.limit_in_bytes"),
                (64 << 20).to_string()
            );
            assert_eq!(read("cpu", "cpu.cfs_quota_us"), "50000");
            assert_eq!(read("cpu", "cpu.shares"), "512");
            assert_eq!(read("pids", "pids.max"), "32");
        }
        Version::V2 => {
            assert_eq!(read("", "memory.max"), (64 << 20).to_string());
            assert_eq!(read("", "cpu.max"), "50000 100000");
            assert_eq!(read("", "cpu.weight"), "50");
            assert_eq!(read("", "pids.max"), "32");
        }
    }
}

#[test]
fn a_frozen_group_uses_no_cpu_and_goes_on_when_thawed() {
    let Some(machine) = Machine::open("freeze") else {
        return;
    };
    let group = machine.manager.create("one", &LIMITS).unwrap();
    let (mut child, _output) = run_in(&group, "while :; do :; done");
    group.freeze(SHORT).unwrap();
    let frozen = group.stats().unwrap().cpu_micros;
    assert_eq!(group.pids().unwrap(), [child.id()]);
    assert_eq!(group.stats().unwrap().cpu_micros, frozen);
    group.thaw(SHORT).unwrap();
    until("work after thawing", || {
        group.stats().unwrap().cpu_micros > frozen
    });
    group.kill_all().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_frozen_group_can_be_killed_and_removed() {
    let Some(machine) = Machine::open("frozenkill") else {
        return;
    };
    let group = machine.manager.create("one", &LIMITS).unwrap();
    let (mut child, _output) = run_in(&group, "sleep 60 & sleep 60 & wait");
    until("three processes", || group.pids().unwrap().len() == 3);
    assert_eq!(group.stats().unwrap().pids, 3);
    group.freeze(SHORT).unwrap();
    group.kill_all().unwrap();
    child.wait().unwrap();
    group.remove(SHORT).unwrap();
    assert!(!group.exists());
}

#[test]
fn warming_up_moves_nobody() {
    let Some(machine) = Machine::open("warm") else {
        return;
    };
    let groups = || fs_err::read_to_string("/proc/self/cgroup").unwrap();
    let before = groups();
    machine.manager.warm_up();
    assert_eq!(groups(), before);
}

#[test]
fn a_fork_bomb_stays_within_its_limit_and_dies() {
    let Some(machine) = Machine::open("bomb") else {
        return;
    };
    let group = machine.manager.create("one", &LIMITS).unwrap();
    let (mut child, _output) = run_in(&group, "bomb() { bomb & bomb & wait; }; bomb");
    until("the limit", || group.stats().unwrap().pids >= 30);
    assert!(group.stats().unwrap().pids <= 32);
    group.kill_all().unwrap();
    child.wait().unwrap();
    assert!(group.pids().unwrap().is_empty());
}

#[test]
fn too_much_memory_kills_inside_and_is_counted() {
    let Some(machine) = Machine::open("oom") else {
        return;
    };
    let group = machine.manager.create("one", &LIMITS).unwrap();
    let (mut child, _output) = run_in(&group, "cat /dev/zero | tail -c 1G > /dev/null");
    until("the end of the bomb", || {
        child.try_wait().unwrap().is_some()
    });
    assert!(!child.wait().unwrap().success());
    let stats = group.stats().unwrap();
    assert!(stats.oom_kills >= 1);
    let nearly_all = (60 << 20)..=(64 << 20);
    assert!(
        stats
            .memory_peak_bytes
            .is_none_or(|peak| nearly_all.contains(&peak)),
        "{stats:?}"
    );
}

#[test]
fn a_slices_limit_binds_all_groups_together_whatever_each_may_use() {
    let Some(machine) = Machine::open("slice") else {
        return;
    };
    let slice = SliceLimits {
        memory_bytes: 96 << 20,
        pids: 40,
        cpu_weight: 50,
    };
    assert!(machine.manager.set_slice(&slice).is_empty());
    let generous = CgroupLimits {
        memory_bytes: 1 << 30,
        pids: 1024,
        ..LIMITS
    };
    let hog = machine.manager.create("hog", &generous).unwrap();
    let calm = machine.manager.create("calm", &generous).unwrap();
    let (mut sleeping, _calm_output) = run_in(&calm, "sleep 60");
    let (mut eating, _hog_output) = run_in(&hog, "cat /dev/zero | tail -c 1G > /dev/null");
    until("the end of the hog", || {
        eating.try_wait().unwrap().is_some()
    });
    assert!(!eating.wait().unwrap().success());
    assert!(sleeping.try_wait().unwrap().is_none(), "others go on");
    assert!(machine.manager.slice_use(0).unwrap().memory_bytes < 96 << 20);

    let bomb = machine.manager.create("bomb", &generous).unwrap();
    let (mut bombing, _bomb_output) = run_in(&bomb, "bomb() { bomb & bomb & wait; }; bomb");
    until("the slice's limit", || {
        machine.manager.slice_use(0).unwrap().pids >= 38
    });
    assert!(machine.manager.slice_use(0).unwrap().pids <= 40);
    for group in [&bomb, &calm, &hog] {
        group.kill_all().unwrap();
    }
    bombing.wait().unwrap();
    sleeping.wait().unwrap();
}

#[test]
fn a_slices_limit_can_be_moved_both_ways() {
    let Some(machine) = Machine::open("moved") else {
        return;
    };
    for memory_mib in [512_u64, 128, 1024] {
        let slice = SliceLimits {
            memory_bytes: memory_mib << 20,
            pids: 100,
            cpu_weight: 50,
        };
        let refused = machine.manager.set_slice(&slice);
        assert!(refused.is_empty(), "{refused:?}");
    }
}
