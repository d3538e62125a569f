//! What a sandbox may do, from the data files.

use seccompiler::TargetArch;
use serde::Deserialize;
use soulbox_runtime::{Error, Result};

const SECCOMP: &str = include_str!("../data/seccomp.json");
const CAPABILITIES: &str = include_str!("../data/capabilities.json");
/// The filters of `seccomp.json` in the order in which they are loaded.
const FILTERS: [&str; 5] = ["known", "refused", "unsupported", "absent", "ignored"];

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
    /// Hex, as `soulbox-init` takes them.
    pub(crate) seccomp: Vec<String>,
    pub(crate) capabilities: Vec<u8>,
}

#[derive(Deserialize)]
struct Capability {
    number: u8,
}

impl Policy {
    pub(crate) fn load() -> Result<Self> {
        let invalid = |what: &str, error: &dyn std::fmt::Display| {
            Error::io(
                format!("the built-in {what} is invalid: {error}"),
                std::io::ErrorKind::InvalidData.into(),
            )
        };
        let arch: TargetArch = std::env::consts::ARCH
            .try_into()
            .map_err(|e| invalid("seccomp filter", &e))?;
        let mut programs = seccompiler::compile_from_json(SECCOMP.as_bytes(), arch)
            .map_err(|e| invalid("seccomp filter", &e))?;
        let seccomp = FILTERS
            .iter()
            .map(|name| {
                let program = programs
                    .remove(*name)
                    .ok_or_else(|| invalid("seccomp filter", &format!("no part {name}")))?;
                Ok(to_hex(&program))
            })
            .collect::<Result<_>>()?;
        let capabilities: Vec<Capability> =
            serde_json::from_str(CAPABILITIES).map_err(|e| invalid("capability list", &e))?;
        Ok(Self {
            seccomp,
            capabilities: capabilities.iter().map(|c| c.number).collect(),
        })
    }
}

fn to_hex(program: &seccompiler::BpfProgram) -> String {
    let bytes = program.iter().flat_map(|instruction| {
        let mut raw = [0_u8; 8];
        raw[..2].copy_from_slice(&instruction.code.to_ne_bytes());
        raw[2] = instruction.jt;
        raw[3] = instruction.jf;
        raw[4..].copy_from_slice(&instruction.k.to_ne_bytes());
        raw
    });
    bytes
        .flat_map(|b| [b >> 4, b & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_policy_compiles() {
        let policy = Policy::load().unwrap();
        assert_eq!(policy.seccomp.len(), FILTERS.len());
        assert!(
            policy
                .seccomp
                .iter()
                .all(|hex| !hex.is_empty() && hex.len().is_multiple_of(16))
        );
        assert!(
            !policy.capabilities.contains(&21),
            "CAP_SYS_ADMIN must not be given"
        );
        assert!(
            !policy.capabilities.contains(&19),
            "CAP_SYS_PTRACE would open envd to root inside"
        );
    }

    #[test]
    fn every_system_call_has_a_reason() {
        let data: serde_json::Value = serde_json::from_str(SECCOMP).unwrap();
        for filter in data.as_object().unwrap().values() {
            for entry in filter["filter"].as_array().unwrap() {
                assert!(
                    entry["comment"].as_str().is_some_and(|c| c.len() > 3),
                    "{entry}"
                );
            }
        }
    }
}
