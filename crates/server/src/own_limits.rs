//! Resource limits that would end the server without an error: a failed allocation aborts it, and the
//! kernel kills a process that has used up its CPU time. Sandboxes must not have them either.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Each with its name, its option in a unit of systemd, and its letter in the shell.
const LIMITS: [(Resource, &str, &str, &str); 3] = [
    (Resource::As, "address space", "LimitAS", "v"),
    (Resource::Data, "data", "LimitDATA", "d"),
    (Resource::Cpu, "cpu time", "LimitCPU", "t"),
];
const NONE: Rlimit = Rlimit {
    current: None,
    maximum: None,
};

pub(crate) fn lift() -> anyhow::Result<()> {
    for (resource, name, unit, shell) in LIMITS {
        if getrlimit(resource) == NONE || setrlimit(resource, NONE).is_ok() {
            continue;
        }
        let maximum = getrlimit(resource).maximum;
        let Some(present) = maximum else {
            continue;
        };
        bail!(
            "the hard limit of {name} is {present}, sandboxes need none, and this server may not \
             raise it (no CAP_SYS_RESOURCE): start it with `ulimit -H{shell} unlimited`, or with \
             {unit}=infinity in its unit"
        );
    }
    Ok(())
}
