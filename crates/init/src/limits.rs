//! The resource limits of a sandbox, whatever those are under which the server was started.
//!
//! They are set as the host's root and before the user namespace is made: later nobody may raise
//! them, and what the namespace allows for pending signals and locked memory is what holds at its
//! birth. Raising takes a capability that containers often lack; then what is there must do.

use std::{fs, io};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use crate::error::{Context, Failure};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const STEP: &str = "resource limits";
/// By the shell, which counts others one by one.
const COUNTED_IN_KIB: [&str; 5] = ["d", "f", "l", "s", "v"];

struct Limit {
    resource: Resource,
    name: &'static str,
    /// In units of systemd, and with a shell.
    unit: &'static str,
    shell: &'static str,
    /// `None`: without a limit.
    least: Option<u64>,
    most: Option<u64>,
}

const LIMITS: [Limit; 8] = [
    limit(Resource::Nofile, "open files", "LimitNOFILE", "n").between(KIB, MIB),
    // Processes are counted by the cgroup.
    limit(Resource::Nproc, "processes", "LimitNPROC", "u").between(4 * KIB, u64::MAX),
    limit(
        Resource::Sigpending,
        "pending signals",
        "LimitSIGPENDING",
        "i",
    )
    .between(KIB, u64::MAX),
    limit(Resource::Memlock, "locked memory", "LimitMEMLOCK", "l").between(64 * KIB, 8 * MIB),
    limit(Resource::As, "address space", "LimitAS", "v"),
    limit(Resource::Data, "data", "LimitDATA", "d"),
    limit(Resource::Fsize, "file size", "LimitFSIZE", "f"),
    limit(Resource::Cpu, "cpu time", "LimitCPU", "t"),
];
const STACK: Limit = limit(Resource::Stack, "stack", "LimitSTACK", "s").between(8 * MIB, u64::MAX);
/// What programs expect: threads get a stack of the soft limit's size each.
const USUAL_STACK: u64 = 8 * MIB;

const fn limit(
    resource: Resource,
    name: &'static str,
    unit: &'static str,
    shell: &'static str,
) -> Limit {
    Limit {
        resource,
        name,
        unit,
        shell,
        least: None,
        most: None,
    }
}

impl Limit {
    const fn between(mut self, least: u64, most: u64) -> Self {
        self.least = Some(least);
        self.most = if most == u64::MAX { None } else { Some(most) };
        self
    }

    /// The highest that is allowed here, and wanted.
    fn maximum(&self, present: Option<u64>) -> Option<u64> {
        let enough = match (self.least, present) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(least), Some(present)) => present >= least,
        };
        let maximum = if enough { present } else { self.least };
        match (maximum, self.most) {
            (Some(maximum), Some(most)) => Some(maximum.min(most)),
            (maximum, most) => maximum.or(most),
        }
    }

    fn apply(&self, soft: Option<u64>) -> Result<(), Failure> {
        let present = getrlimit(self.resource).maximum;
        let maximum = self.maximum(present);
        let limits = Rlimit {
            current: soft.or(maximum),
            maximum,
        };
        match setrlimit(self.resource, limits) {
            Err(Errno::PERM) => Err(io::Error::from(Errno::PERM))
                .at_with(STEP, || self.too_low(present.unwrap_or(u64::MAX))),
            other => other.at(STEP),
        }
    }

    fn too_low(&self, present: u64) -> String {
        let Self {
            name, unit, shell, ..
        } = self;
        let (least, value) = match self.least {
            Some(least) => {
                let value = if COUNTED_IN_KIB.contains(shell) {
                    least / KIB
                } else {
                    least
                };
                (format!("at least {least}"), value.to_string())
            }
            None => ("none".to_owned(), "unlimited".to_owned()),
        };
        format!(
            "the hard limit of {name} is {present}, a sandbox needs {least}, and this server may \
             not raise it (no CAP_SYS_RESOURCE): start it with `ulimit -H{shell} {value}`, or with \
             {unit}= in its unit"
        )
    }
}

pub(crate) fn apply() -> Result<(), Failure> {
    for limit in &LIMITS {
        limit.apply(None)?;
    }
    STACK.apply(Some(USUAL_STACK))?;
    // What the host grants to its own users for real-time and nice values is not for sandboxes.
    for resource in [Resource::Rtprio, Resource::Nice] {
        set_both(resource, 0).at(STEP)?;
    }
    no_core_dumps()
}

/// One byte, not zero: the kernel still runs a `core_pattern` *program* (as the host's root) for a
/// limit of zero, and only refuses for one.
fn no_core_dumps() -> Result<(), Failure> {
    match set_both(Resource::Core, 1) {
        Err(Errno::PERM) => {
            let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").at(STEP)?;
            if pattern.starts_with('|') {
                return Err(io::Error::from(Errno::PERM)).at_with(STEP, || {
                    "the hard limit of core dumps is 0 and this server may not raise it (no \
                     CAP_SYS_RESOURCE), so every crash in a sandbox would run this machine's \
                     kernel.core_pattern program as root: start it with `ulimit -Hc unlimited`, or \
                     with LimitCORE=infinity in its unit, or set kernel.core_pattern=core"
                        .to_owned()
                });
            }
            set_both(Resource::Core, 0).at(STEP)
        }
        other => other.at(STEP),
    }
}

fn set_both(resource: Resource, value: u64) -> Result<(), Errno> {
    let limits = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    setrlimit(resource, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(resource: Resource) -> &'static Limit {
        LIMITS
            .iter()
            .find(|limit| limit.resource == resource)
            .unwrap()
    }

    #[test]
    fn limits_that_are_high_enough_are_kept_and_lowered_to_what_is_sensible() {
        let files = of(Resource::Nofile);
        assert_eq!(files.maximum(Some(20_000)), Some(20_000));
        assert_eq!(files.maximum(Some(1 << 30)), Some(MIB));
        assert_eq!(files.maximum(None), Some(MIB));
        assert_eq!(of(Resource::Nproc).maximum(None), None);
        assert_eq!(of(Resource::As).maximum(None), None);
    }

    #[test]
    fn limits_that_are_too_low_are_raised_to_what_a_sandbox_needs() {
        assert_eq!(of(Resource::Nofile).maximum(Some(64)), Some(KIB));
        assert_eq!(of(Resource::Nproc).maximum(Some(10)), Some(4 * KIB));
        assert_eq!(of(Resource::Fsize).maximum(Some(1 << 20)), None);
    }

    #[test]
    fn who_cannot_raise_a_limit_is_told_which_and_how() {
        let said = of(Resource::Nproc).too_low(10);
        for part in ["processes is 10", "4096", "ulimit -Hu 4096", "LimitNPROC="] {
            assert!(said.contains(part), "{said}");
        }
        let memory = of(Resource::Memlock).too_low(5);
        assert!(memory.contains("ulimit -Hl 64`"), "{memory}");
        assert!(of(Resource::As).too_low(5).contains("ulimit -Hv unlimited"));
    }
}
