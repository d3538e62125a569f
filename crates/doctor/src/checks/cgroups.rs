//! Control groups: makes one, limits, freezes and kills a process in it, removes it.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use soulbox_cgroup::{CgroupLimits, Error, Manager};
use soulbox_types::Chain;

use crate::report::Finding;

const LIMIT: Duration = Duration::from_secs(3);
const ADVICE: &str = "mount cgroup2 on /sys/fs/cgroup, or start the container with access to it";

pub(crate) fn check() -> Finding {
    let manager = match open() {
        Ok(manager) => manager,
        Err(error) => return Finding::fail(Chain(&error).to_string(), ADVICE),
    };
    let tried = try_group(&manager);
    if let Err(error) = manager
        .existing("probe")
        .remove(LIMIT)
        .and_then(|()| manager.remove_parent())
    {
        return Finding::fail(
            Chain(&error).to_string(),
            "look for processes in that group",
        );
    }
    if let Err(message) = tried {
        return Finding::fail(message, ADVICE);
    }
    let names: Vec<_> = manager
        .controllers()
        .iter()
        .map(ToString::to_string)
        .collect();
    let detail = format!("{:?}: {}", manager.version(), names.join(", "));
    Finding::ok(detail)
}

/// Only whether groups can be made.
pub(crate) fn quick() -> Finding {
    match open().and_then(|manager| manager.remove_parent()) {
        Ok(()) => Finding::ok(""),
        Err(error) => Finding::fail(Chain(&error).to_string(), ADVICE),
    }
}

fn open() -> Result<Manager, Error> {
    Manager::open(&format!("soulbox-doctor-{}", std::process::id()))
}

fn try_group(manager: &Manager) -> Result<(), String> {
    let limits = CgroupLimits {
        cpu_millis: 500,
        cpu_weight: CgroupLimits::USUAL_CPU_WEIGHT,
        memory_bytes: 64 << 20,
        swap_bytes: 0,
        pids: 16,
    };
    let group = manager
        .create("probe", &limits)
        .map_err(|e| Chain(&e).to_string())?;
    let mut child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("could not start `sleep`: {error}"))?;
    let moved = group.procs_files().iter().try_for_each(|file| {
        std::fs::write(file, child.id().to_string())
            .map_err(|error| format!("could not move a process into {}: {error}", file.display()))
    });
    let used = moved.and_then(|()| {
        group.freeze(LIMIT).map_err(|e| Chain(&e).to_string())?;
        group.thaw(LIMIT).map_err(|e| Chain(&e).to_string())?;
        let stats = group.stats().map_err(|e| Chain(&e).to_string())?;
        if stats.pids == 1 {
            Ok(())
        } else {
            Err(format!("{} processes counted", stats.pids))
        }
    });
    let killed = group.kill_all().map_err(|e| Chain(&e).to_string());
    // In case it never got into the group.
    child
        .kill()
        .map_err(|error| format!("could not end `sleep`: {error}"))?;
    child
        .wait()
        .map_err(|error| format!("could not wait for `sleep`: {error}"))?;
    used.and(killed)
}
