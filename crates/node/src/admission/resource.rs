//! What can lack, in words.

use std::time::Duration;

use soulbox_runtime::Error;
use soulbox_types::Limits;

/// What a sandbox needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Memory,
    /// Processes and threads.
    Threads,
    /// Descriptors of the server, and open files of the machine.
    Files,
    /// `--max-sandboxes`.
    Sandboxes,
    /// Network slots.
    Slots,
    Disk,
    /// `--overcommit-memory`.
    PromisedMemory,
    /// `--overcommit-cpu`.
    PromisedCpu,
    /// One's turn to be started.
    Starts,
    /// Of the machine.
    Terminals,
    /// In the kernel's table, which the machine shares.
    Connections,
}

impl Resource {
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::Threads,
        Self::Files,
        Self::Sandboxes,
        Self::Slots,
        Self::Disk,
        Self::PromisedMemory,
        Self::PromisedCpu,
        Self::Starts,
        Self::Terminals,
        Self::Connections,
    ];

    /// For a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Threads => "threads",
            Self::Files => "files",
            Self::Sandboxes => "sandboxes",
            Self::Slots => "slots",
            Self::Disk => "disk",
            Self::PromisedMemory => "promised_memory",
            Self::PromisedCpu => "promised_cpu",
            Self::Starts => "starts",
            Self::Terminals => "terminals",
            Self::Connections => "connections",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// Why a sandbox does not fit just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) resource: Resource,
    pub(super) what: String,
    /// However long it waits.
    pub(super) forever: bool,
}

/// Most sandboxes live for minutes, so it may be worth asking again soon.
const SOON: Duration = Duration::from_secs(2);
/// Somebody has to free a disk.
const LATER: Duration = Duration::from_secs(30);

impl Shortage {
    fn of(resource: Resource, what: String) -> Self {
        Self {
            resource,
            what,
            forever: false,
        }
    }

    fn forever(resource: Resource, what: String) -> Self {
        Self {
            forever: true,
            ..Self::of(resource, what)
        }
    }

    /// Of something that is counted or measured.
    pub(super) fn level(
        resource: Resource,
        whose: &str,
        need: u64,
        reserved: u64,
        used: u64,
        bound: u64,
    ) -> Self {
        let what = match resource {
            Resource::Memory => format!(
                "memory: a sandbox needs about {} MiB, but {} of {} MiB {whose} are in use and {} \
                 MiB are set aside for sandboxes that are being started",
                mib(need),
                mib(used),
                bound >> 20,
                mib(reserved),
            ),
            Resource::Terminals | Resource::Connections => format!(
                "{}: {used} of {bound} {whose} are in use, and the rest is kept for the sandboxes \
                 that are here",
                resource.as_str(),
            ),
            other => format!(
                "{}: a sandbox needs about {need}, but {used} of {bound} {whose} are in use and \
                 {reserved} are set aside for sandboxes that are being started",
                other.as_str(),
            ),
        };
        Self::of(resource, what)
    }

    pub(super) fn sandboxes(used: usize, most: usize) -> Self {
        let what = format!("sandboxes: {used} of {most} are here (--max-sandboxes)");
        Self::of(Resource::Sandboxes, what)
    }

    pub(super) fn disk(free: u64, reserve: u64) -> Self {
        let what = format!(
            "disk: the data folder's disk has only {} MiB free, and {} MiB are kept in reserve",
            free >> 20,
            reserve >> 20
        );
        Self::of(Resource::Disk, what)
    }

    pub(super) fn starts(waiting: u64) -> Self {
        let what = format!("starts: {waiting} sandboxes wait to be started, and come first");
        Self::of(Resource::Starts, what)
    }

    pub(super) fn stopping() -> Self {
        let what = "starts: the server stops, and takes new sandboxes when it is back".to_owned();
        Self::of(Resource::Starts, what)
    }

    pub(super) fn promised_memory(limits: &Limits, promised: u64, most: u64) -> Self {
        if limits.memory_bytes() > most {
            return Self::forever(
                Resource::PromisedMemory,
                format!(
                    "a sandbox of {} MiB, where {} MiB may be promised to all together: ask for \
                     less, or raise --overcommit-memory",
                    limits.memory_mib,
                    most >> 20
                ),
            );
        }
        let what = format!(
            "promised memory: this sandbox may use {} MiB, and {} of {} MiB are promised to others \
             (--overcommit-memory)",
            limits.memory_mib,
            mib(promised),
            most >> 20
        );
        Self::of(Resource::PromisedMemory, what)
    }

    pub(super) fn promised_cpu(limits: &Limits, promised: u64, most: u64) -> Self {
        let cpus = |millis: u64| format!("{}.{:02}", millis / 1000, millis % 1000 / 10);
        if u64::from(limits.cpu_millis) > most {
            return Self::forever(
                Resource::PromisedCpu,
                format!(
                    "a sandbox of {} cpus, where {} may be promised to all together: ask for \
                     less, or raise --overcommit-cpu",
                    cpus(limits.cpu_millis.into()),
                    cpus(most)
                ),
            );
        }
        let what = format!(
            "promised cpu: this sandbox may use {} cpus, and {} of {} are promised to others \
             (--overcommit-cpu)",
            cpus(limits.cpu_millis.into()),
            cpus(promised),
            cpus(most)
        );
        Self::of(Resource::PromisedCpu, what)
    }
}

/// Rounded up: what is used is never shown as nothing.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl From<Shortage> for Error {
    fn from(shortage: Shortage) -> Self {
        if shortage.forever {
            return Self::TooLarge {
                what: shortage.what,
            };
        }
        let retry_after = if shortage.resource == Resource::Disk {
            LATER
        } else {
            SOON
        };
        Self::NoCapacity {
            what: shortage.what,
            retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_has_its_own_index_and_label() {
        for (index, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource.index(), index);
        }
        let labels: std::collections::HashSet<_> = Resource::ALL.map(Resource::as_str).into();
        assert_eq!(labels.len(), Resource::ALL.len());
    }

    #[test]
    fn a_refusal_names_the_resource_and_the_amounts() {
        let shortage = Shortage::level(
            Resource::Memory,
            "of the machine",
            24 << 20,
            48 << 20,
            900 << 20,
            960 << 20,
        );
        assert_eq!(
            shortage.what,
            "memory: a sandbox needs about 24 MiB, but 900 of 960 MiB of the machine are in use \
             and 48 MiB are set aside for sandboxes that are being started"
        );
        let limits = Limits::default();
        let shortage = Shortage::promised_cpu(&limits, 1500, 3000);
        assert!(
            shortage
                .what
                .contains("may use 2.00 cpus, and 1.50 of 3.00"),
            "{}",
            shortage.what
        );
        assert!(!shortage.forever && Shortage::promised_cpu(&limits, 0, 1000).forever);
        let Error::NoCapacity { retry_after, .. } = Shortage::sandboxes(3, 3).into() else {
            panic!()
        };
        assert_eq!(retry_after, SOON);
    }
}
