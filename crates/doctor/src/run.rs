use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::process::Uid;
use soulbox_types::Tier;

use crate::{
    Problem,
    checks::{self, Scratch, sandbox::TrialResult},
    report::{Check, Finding, Outcome, Report, TierReport},
};

#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// Where the server keeps (or will keep) its data: the file system matters.
    pub data_dir: PathBuf,
    /// What the server will keep free, as configured.
    pub min_free_disk: u64,
    /// Also what takes seconds: a gVisor sandbox and a virtual machine.
    pub thorough: bool,
    /// Where the server will listen, each with the option that chooses another address.
    pub addresses: Vec<(SocketAddr, &'static str)>,
    /// What came of a whole sandbox.
    pub sandbox: TrialResult,
}

/// Tries everything. Blocking; some seconds at most, longer only where a virtual machine hangs.
///
/// As another user than root, only what that user can find out: the rest would fail for the wrong
/// reason, or work in another way than it would for the server.
pub fn run(options: &DoctorOptions) -> Report {
    let other_user = checks::identity::other_user();
    let mut checks = Checks {
        as_root: other_user.is_none(),
        done: Vec::new(),
    };
    checks.any_user("root", "root and capabilities", true, || {
        other_user.map_or_else(checks::identity::root, nothing_to_try_with)
    });
    checks.any_user("kernel", "kernel", true, checks::identity::kernel);
    if try_the_jail(&mut checks, &options.data_dir) {
        checks.required("sandbox", "a whole sandbox", || {
            checks::sandbox::check(options.sandbox.clone(), &options.data_dir)
        });
    }
    checks.required("ports", "the server's addresses", || {
        checks::ports::check(&options.addresses, &options.data_dir)
    });
    checks.any_user("space", "free space", true, || {
        checks::storage::space(&options.data_dir, options.min_free_disk)
    });
    checks.any_user(
        "open_files",
        "open files",
        true,
        checks::storage::open_files,
    );
    checks.any_user("limits", "limits of the kernel", false, || {
        checks::storage::limits()
    });
    checks.any_user("landlock", "landlock", false, checks::features::landlock);
    try_the_others(&mut checks, options);

    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: checks::identity::release(),
        tiers: tiers(&checks.done),
        checks: checks.done,
    }
}

fn nothing_to_try_with(uid: Uid) -> Finding {
    Finding {
        outcome: Outcome::Unknown,
        detail: format!(
            "running as uid {}: what needs root could not be tried",
            uid.as_raw()
        ),
        advice: Some("run it as root: sudo soulbox doctor".into()),
    }
}

/// What sandboxes need and this machine does not have, after one of them did not start. Blocking.
pub fn missing(data_dir: &Path) -> Vec<Problem> {
    let mut checks = Checks {
        as_root: checks::identity::other_user().is_none(),
        done: Vec::new(),
    };
    try_the_jail(&mut checks, data_dir);
    let failed = checks
        .done
        .into_iter()
        .filter(|c| c.outcome == Outcome::Fail);
    failed
        .map(|check| Problem {
            what: format!("{}: {}", check.title, check.detail),
            advice: check.advice.unwrap_or_default(),
        })
        .collect()
}

/// `false`: there is no place to try things in.
fn try_the_jail(checks: &mut Checks, data_dir: &Path) -> bool {
    let scratch = Scratch::new(data_dir);
    let folder = checks::storage::folder(&scratch, data_dir);
    let cannot_try = folder.outcome == Outcome::Fail;
    checks.required("folder", "data folder", || folder);
    if cannot_try && checks.as_root {
        return false;
    }
    checks.required("namespaces", "namespaces", || {
        checks::probes::namespaces(&scratch)
    });
    // Both have their ids from a user namespace.
    let namespaces = checks.done.last().map(|check| check.outcome);
    let with_ids = |check: &dyn Fn() -> Finding| {
        if namespaces == Some(Outcome::Fail) {
            Finding::skipped("not tried: it needs namespaces")
        } else {
            check()
        }
    };
    checks.required("overlay", "overlay with shifted ids", || {
        with_ids(&|| checks::probes::overlay(&scratch))
    });
    checks.required("disk", "disk images (loop, ext4)", || {
        with_ids(&|| checks::probes::disk(&scratch))
    });
    checks.optional("device", "devices of a sandbox's own", || {
        checks::probes::device(&scratch)
    });
    checks.required("cgroups", "control groups", checks::cgroups::check);
    checks.required("nftables", "nftables", || {
        checks::probes::nftables(&scratch)
    });
    checks.required("network", "network namespaces, veth", || {
        checks::probes::network(&scratch)
    });
    checks.required("seccomp", "system call filter", || {
        checks::probes::seccomp(&scratch)
    });
    checks.required("openat2", "openat2", || checks::features::openat2(data_dir));
    true
}

fn try_the_others(checks: &mut Checks, options: &DoctorOptions) {
    let scratch = Scratch::new(&options.data_dir);
    let slow = |check: fn() -> Finding| {
        if options.thorough {
            check()
        } else {
            Finding::unknown("left out, as it takes seconds")
        }
    };
    checks.optional("userfaultfd", "userfaultfd", checks::features::userfaultfd);
    checks.optional("runsc", "gVisor (runsc)", || slow(checks::tiers::runsc));
    checks.optional("kvm", "KVM: instructions in a guest", || {
        checks::probes::kvm(&scratch)
    });
    checks.optional("kvm_boot", "KVM: a Linux guest boots", || {
        slow(checks::tiers::boot)
    });
    checks.optional("docker", "Docker", checks::tiers::docker);
}

struct Checks {
    as_root: bool,
    done: Vec<Check>,
}

impl Checks {
    /// As root only.
    fn required(&mut self, id: &str, title: &str, check: impl FnOnce() -> Finding) {
        self.of_root(id, title, true, check);
    }

    /// As root only.
    fn optional(&mut self, id: &str, title: &str, check: impl FnOnce() -> Finding) {
        self.of_root(id, title, false, check);
    }

    fn of_root(&mut self, id: &str, title: &str, required: bool, check: impl FnOnce() -> Finding) {
        if self.as_root {
            self.any_user(id, title, required, check);
        } else {
            self.any_user(id, title, required, || Finding::unknown("needs root"));
        }
    }

    fn any_user(&mut self, id: &str, title: &str, required: bool, check: impl FnOnce() -> Finding) {
        let start = Instant::now();
        let Finding {
            outcome,
            detail,
            advice,
        } = check();
        let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.done.push(Check {
            id: id.into(),
            title: title.into(),
            outcome,
            detail,
            advice,
            required,
            millis,
        });
    }
}

fn tiers(checks: &[Check]) -> Vec<TierReport> {
    let by_check = |tier, id: &str| {
        let check = checks.iter().find(|check| check.id == id);
        TierReport::new(
            tier,
            check.is_some_and(|c| matches!(c.outcome, Outcome::Ok | Outcome::Warn)),
            check.is_some_and(|c| c.outcome == Outcome::Unknown),
            check.map(|c| c.detail.clone()).unwrap_or_default(),
        )
    };
    vec![
        jail(checks),
        by_check(Tier::Gvisor, "runsc"),
        by_check(Tier::Microvm, "kvm_boot"),
        by_check(Tier::Docker, "docker"),
    ]
}

fn jail(checks: &[Check]) -> TierReport {
    let required = || checks.iter().filter(|check| check.required);
    let failed: Vec<_> = required()
        .filter(|c| matches!(c.outcome, Outcome::Fail | Outcome::Skipped))
        .map(|c| c.title.as_str())
        .collect();
    let unknown: Vec<_> = required()
        .filter(|c| c.outcome == Outcome::Unknown)
        .collect();
    let reason = match (failed.as_slice(), unknown.last()) {
        ([], None) => "everything that it needs works".into(),
        // They have one cause; the first of them says who we are instead.
        ([], Some(last)) => last.detail.clone(),
        _ => format!("does not work: {}", failed.join("; ")),
    };
    TierReport::new(
        Tier::Jail,
        failed.is_empty() && unknown.is_empty(),
        failed.is_empty() && !unknown.is_empty(),
        reason,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(as_root: bool) -> Checks {
        Checks {
            as_root,
            done: Vec::new(),
        }
    }

    fn with(outcome: Outcome) -> Vec<Check> {
        let mut checks = checks(true);
        checks.required("root", "root", || Finding::ok(""));
        checks.required("disk", "disks", || Finding {
            outcome,
            ..Finding::ok("")
        });
        checks.optional("docker", "docker", || Finding::skipped("no socket"));
        checks.done
    }

    #[test]
    fn the_jail_needs_every_required_check() {
        assert!(tiers(&with(Outcome::Ok))[0].available);
        assert!(tiers(&with(Outcome::Warn))[0].available);
        let jail = &tiers(&with(Outcome::Fail))[0];
        assert!(!jail.available && !jail.unknown);
        assert_eq!(jail.reason, "does not work: disks");
    }

    #[test]
    fn what_was_not_tried_is_not_offered() {
        let docker = tiers(&with(Outcome::Ok)).pop().unwrap();
        assert!(!docker.available && !docker.unknown);
        assert_eq!(docker.reason, "no socket");
        let jail = &tiers(&with(Outcome::Unknown))[0];
        assert!(!jail.available && jail.unknown, "{jail:?}");
    }

    #[test]
    fn another_user_than_root_does_not_try_what_only_root_can_answer() {
        let mut checks = checks(false);
        checks.any_user("kernel", "kernel", true, || Finding::ok("6.1"));
        checks.required("disk", "disks", || unreachable!("it would fail"));
        checks.optional("runsc", "gVisor", || unreachable!("it might work"));
        let unknown = |check: &Check| check.outcome == Outcome::Unknown;
        assert!(!unknown(&checks.done[0]) && checks.done[1..].iter().all(unknown));
        let tiers = tiers(&checks.done);
        assert!(tiers.iter().all(|tier| !tier.available), "{tiers:?}");
        assert!(tiers[0].unknown && tiers[1].unknown, "{tiers:?}");
    }
}
