use std::{path::PathBuf, time::Instant};

use soulbox_types::Tier;

use crate::{
    checks::{self, Scratch},
    report::{Check, Finding, Outcome, Report, TierReport},
};

#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// Where the server keeps (or will keep) its data: the file system matters.
    pub data_dir: PathBuf,
    /// Also what takes seconds: a gVisor sandbox and a virtual machine.
    pub thorough: bool,
}

/// Tries everything. Blocking; some seconds at most, longer only where a virtual machine hangs.
pub fn run(options: &DoctorOptions) -> Report {
    let mut checks = Checks::default();
    let scratch = Scratch::new(&options.data_dir);
    let slow = |check: fn() -> Finding| {
        if options.thorough {
            check()
        } else {
            Finding::skipped("only when asked to be thorough")
        }
    };

    checks.required("root", "root and capabilities", checks::identity::root);
    checks.required("kernel", "kernel", checks::identity::kernel);
    checks.required("namespaces", "namespaces", || {
        checks::probes::namespaces(&scratch)
    });
    checks.required("overlay", "overlay with shifted ids", || {
        checks::probes::overlay(&scratch)
    });
    checks.required("disk", "disk images (loop, ext4)", || {
        checks::probes::disk(&scratch)
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
    checks.required("openat2", "openat2", || {
        checks::features::openat2(&options.data_dir)
    });
    checks.required("space", "free space", || {
        checks::storage::space(&options.data_dir)
    });
    checks.optional("limits", "limits of the kernel", checks::storage::limits);
    checks.optional("landlock", "landlock", checks::features::landlock);
    checks.optional("userfaultfd", "userfaultfd", checks::features::userfaultfd);
    checks.optional("runsc", "gVisor (runsc)", || slow(checks::tiers::runsc));
    checks.optional("kvm", "KVM: instructions in a guest", || {
        checks::probes::kvm(&scratch)
    });
    checks.optional("kvm_boot", "KVM: a Linux guest boots", || {
        slow(checks::tiers::boot)
    });
    checks.optional("docker", "Docker", checks::tiers::docker);

    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: checks::identity::release(),
        tiers: tiers(&checks.0),
        checks: checks.0,
    }
}

#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn required(&mut self, id: &str, title: &str, check: impl FnOnce() -> Finding) {
        self.add(id, title, true, check);
    }

    fn optional(&mut self, id: &str, title: &str, check: impl FnOnce() -> Finding) {
        self.add(id, title, false, check);
    }

    fn add(&mut self, id: &str, title: &str, required: bool, check: impl FnOnce() -> Finding) {
        let start = Instant::now();
        let Finding {
            outcome,
            detail,
            advice,
        } = check();
        let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.push(Check {
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
    let failed: Vec<_> = checks
        .iter()
        .filter(|c| c.required && matches!(c.outcome, Outcome::Fail | Outcome::Skipped))
        .map(|c| c.title.as_str())
        .collect();
    let jail = TierReport {
        tier: Tier::Jail,
        available: failed.is_empty(),
        reason: if failed.is_empty() {
            "everything that it needs works".into()
        } else {
            format!("does not work: {}", failed.join("; "))
        },
    };
    let by_check = |tier, id: &str| {
        let check = checks.iter().find(|check| check.id == id);
        let available = check.is_some_and(|c| matches!(c.outcome, Outcome::Ok | Outcome::Warn));
        let reason = check.map(|c| c.detail.clone()).unwrap_or_default();
        TierReport {
            tier,
            available,
            reason,
        }
    };
    vec![
        jail,
        by_check(Tier::Gvisor, "runsc"),
        by_check(Tier::Microvm, "kvm_boot"),
        by_check(Tier::Docker, "docker"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(outcome: Outcome) -> Vec<Check> {
        let mut checks = Checks::default();
        checks.required("root", "root", || Finding::ok(""));
        checks.required("disk", "disks", || Finding {
            outcome,
            ..Finding::ok("")
        });
        checks.optional("docker", "docker", || Finding::skipped("no socket"));
        checks.0
    }

    #[test]
    fn the_jail_needs_every_required_check() {
        assert!(tiers(&with(Outcome::Ok))[0].available);
        assert!(tiers(&with(Outcome::Warn))[0].available);
        let jail = &tiers(&with(Outcome::Fail))[0];
        assert!(!jail.available);
        assert_eq!(jail.reason, "does not work: disks");
    }

    #[test]
    fn what_was_not_tried_is_not_offered() {
        let docker = tiers(&with(Outcome::Ok)).pop().unwrap();
        assert!(!docker.available);
        assert_eq!(docker.reason, "no socket");
    }
}
