//! How much memory the kernel uses for itself.

use std::fs;

/// A page, in which the kernel counts much of its memory. On x86-64, the only one so far.
const PAGE: u64 = 4096;
/// Less is short on no machine: its settings need not be read.
const LITTLE: u64 = 64 << 20;
/// What is a program's, a file's, or told of anyway. The rest is the kernel's own.
const EXPLAINED: [&str; 12] = [
    "MemFree",
    "Buffers",
    "Cached",
    "SwapCached",
    "AnonPages",
    "KReclaimable",
    "KernelStack",
    "PageTables",
    "SecPageTables",
    "Percpu",
    "Hugetlb",
    "Zswap",
];

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelMemory {
    /// Of the machine.
    pub total: u64,
    /// In use, and neither programs' nor page cache. Buffers of sockets are in it.
    pub unexplained: u64,
    /// Sockets have so much together that the kernel begins to keep all of them short.
    pub sockets_short: bool,
}

impl KernelMemory {
    /// `None` when the kernel does not tell. Blocking: three small reads, usually.
    pub(crate) fn of_this_machine() -> Option<Self> {
        let (total, used) = unexplained(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let zones = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        let sockets = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
        let is_short = |(protocol, setting): (&str, &str)| {
            let held = held_by(protocol, &sockets).unwrap_or(0);
            held > LITTLE && pressure(setting).is_some_and(|pressure| held > pressure)
        };
        Some(Self {
            total,
            unexplained: used.saturating_sub(free_of_cpus(&zones)),
            sockets_short: [("TCP:", "tcp_mem"), ("UDP:", "udp_mem")]
                .into_iter()
                .any(is_short),
        })
    }
}

fn unexplained(meminfo: &str) -> Option<(u64, u64)> {
    let mut total = None;
    let mut explained = 0_u64;
    for line in meminfo.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name != "MemTotal" && !EXPLAINED.contains(&name) {
            continue;
        }
        let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
        let bytes = kib.checked_mul(1024)?;
        if name == "MemTotal" {
            total = Some(bytes);
        } else {
            explained = explained.saturating_add(bytes);
        }
    }
    let total = total?;
    Some((total, total.saturating_sub(explained)))
}

/// Pages that each cpu keeps free for itself, which do not count as free: up to an eighth of the
/// machine since Linux 6.7, and hundreds of megabytes more or less within seconds.
fn free_of_cpus(zoneinfo: &str) -> u64 {
    let lines = zoneinfo.lines().map(str::trim_start);
    let counts = lines.filter_map(|line| line.strip_prefix("count:")?.trim().parse::<u64>().ok());
    counts.fold(0, u64::saturating_add).saturating_mul(PAGE)
}

/// `TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 149`, in pages. Of the whole machine, whatever the
/// namespace of who asks.
fn held_by(protocol: &str, sockstat: &str) -> Option<u64> {
    let mut lines = sockstat.lines();
    let told = lines.find_map(|line| line.strip_prefix(protocol))?;
    let mut words = told.split_ascii_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse::<u64>().ok()?.checked_mul(PAGE)
}

/// From where on the kernel keeps sockets short: the middle one of three.
fn pressure(setting: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(PAGE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let meminfo = "MemTotal:       1000 kB\nMemFree:   100 kB\nMemAvailable: 900 kB\nCached: 50 kB\n\
                       AnonPages: 30 kB\nSlab: 700 kB\nHugePages_Total:       0\nHugetlb: 20 kB\n";
        assert_eq!(unexplained(meminfo), Some((1000 << 10, 800 << 10)));
        assert_eq!(unexplained("MemFree: 1 kB\n"), None);
        let zones = "Node 0, zone Normal\n  pages free 7\n  pagesets\n    cpu: 0\n        count:    994\n        high: 1444\n    cpu: 1\n        count:    2\n";
        assert_eq!(free_of_cpus(zones), 996 * PAGE);
        let sockstat =
            "sockets: used 17\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 149\nUDP: inuse 0 mem 2\n";
        assert_eq!(held_by("TCP:", sockstat), Some(149 * PAGE));
        assert_eq!(held_by("UDP:", sockstat), Some(2 * PAGE));
        assert_eq!(held_by("RAW:", sockstat), None);
    }

    #[test]
    fn this_machine_tells() {
        let memory = KernelMemory::of_this_machine().unwrap();
        assert!(
            memory.total > 0 && memory.unexplained < memory.total,
            "{memory:?}"
        );
        assert!(pressure("tcp_mem").unwrap() > LITTLE || memory.total < 2 << 30);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_words_can_be_looked_at(text in "((MemTotal|MemFree|Cached|TCP|mem|count)[: ]*[0-9]{0,20}( kB)?\n?){0,8}") {
            if let Some((total, unexplained)) = unexplained(&text) {
                prop_assert!(unexplained <= total);
            }
            let _any = (held_by("TCP:", &text), free_of_cpus(&text));
        }
    }
}
