//! What a sandbox may do, from the data files.

mod numbers;
mod rules;
mod tree;

use serde::Deserialize;
use soulbox_runtime::{Error, Result};

use self::{rules::Decisions, tree::Instruction};

const SECCOMP: &str = include_str!("../data/seccomp.json");
const CAPABILITIES: &str = include_str!("../data/capabilities.json");

/// Hidden: they tell about the host or its kernel. None is writable inside in any case.
pub(crate) const MASKED: [&str; 36] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/consoles",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
];
pub(crate) const READ_ONLY: [&str; 1] = ["/proc/sys"];

#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Hex, as `soulbox-init` takes it.
    pub(crate) seccomp: String,
    pub(crate) capabilities: Vec<u8>,
}

#[derive(Deserialize)]
struct Capability {
    number: u8,
}

impl Policy {
    pub(crate) fn load() -> Result<Self> {
        let capabilities: Vec<Capability> = serde_json::from_str(CAPABILITIES)
            .map_err(|error| invalid("capability list", &error.to_string()))?;
        Ok(Self {
            seccomp: to_hex(&program()?),
            capabilities: capabilities.iter().map(|c| c.number).collect(),
        })
    }
}

fn program() -> Result<Vec<Instruction>> {
    let wrong = |what: &str| invalid("seccomp filter", what);
    let decisions = Decisions::parse(SECCOMP).map_err(|error| wrong(&error.to_string()))?;
    tree::compile(&decisions.ranges()).ok_or_else(|| wrong("it is too large"))
}

fn invalid(what: &str, why: &str) -> Error {
    Error::io(
        format!("the built-in {what} is invalid: {why}"),
        std::io::ErrorKind::InvalidData.into(),
    )
}

fn to_hex(program: &[Instruction]) -> String {
    let bytes = program.iter().flat_map(|instruction| {
        let mut raw = [0_u8; 8];
        raw[..2].copy_from_slice(&instruction.code.to_ne_bytes());
        raw[2] = instruction.jump_true;
        raw[3] = instruction.jump_false;
        raw[4..].copy_from_slice(&instruction.value.to_ne_bytes());
        raw
    });
    bytes
        .flat_map(|b| [b >> 4, b & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests;
