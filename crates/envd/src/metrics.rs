//! `GET /metrics`: totals are what the sandbox was promised, use is what its cgroup counts.

use std::{cell::Cell, fs, time::Instant};

use serde::Serialize;

use crate::time;

/// Two questions closer than this get the same cpu figure: the difference would be noise.
const MIN_INTERVAL_NANOS: u128 = 100_000_000;

pub(crate) struct Metrics {
    totals: Cell<Totals>,
    last: Cell<(Instant, u64, f64)>,
}

/// What the sandbox was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Zero: as much as the kernel reports.
    pub(crate) memory: u64,
    pub(crate) cpus: u32,
    /// Zero: the size of the file system.
    pub(crate) disk: u64,
}

/// E2B's field names.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    ts: i64,
    cpu_count: u32,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

impl Metrics {
    pub(crate) fn new(totals: Totals) -> Self {
        Self {
            totals: Cell::new(totals),
            last: Cell::new((Instant::now(), cpu_nanos(), 0.0)),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals.get()
    }

    pub(crate) fn set_totals(&self, totals: Totals) {
        self.totals.set(totals);
    }

    pub(crate) fn sample(&self) -> Sample {
        let (mem_used, mem_cache) = memory();
        let (disk_used, disk_size) = disk();
        let totals = self.totals.get();
        let mem_total = if totals.memory > 0 {
            totals.memory
        } else {
            proc_memory().0
        };
        Sample {
            ts: time::unix_seconds(),
            cpu_count: totals.cpus,
            cpu_used_pct: self.cpu_percent(),
            mem_total,
            mem_used,
            mem_cache,
            mem_total_mib: mem_total >> 20,
            mem_used_mib: mem_used >> 20,
            disk_used,
            disk_total: if totals.disk > 0 {
                totals.disk
            } else {
                disk_size
            },
        }
    }

    /// Share of all cpus since the last question, with two decimals.
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    fn cpu_percent(&self) -> f64 {
        let (since, used, percent) = self.last.get();
        let elapsed = since.elapsed().as_nanos();
        if elapsed < MIN_INTERVAL_NANOS {
            return percent;
        }
        let now = cpu_nanos();
        let capacity = elapsed as f64 * f64::from(self.totals.get().cpus.max(1));
        let percent = now.saturating_sub(used) as f64 / capacity * 100.0;
        let percent = (percent * 100.0).round() / 100.0;
        self.last.set((Instant::now(), now, percent));
        percent
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value of a line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(char::is_whitespace)?;
        (key.trim_end_matches(':') == name)
            .then(|| value.trim().trim_end_matches(" kB").parse().ok())?
    })
}

fn cpu_nanos() -> u64 {
    let v2 = || {
        field(
            &fs::read_to_string("/sys/fs/cgroup/cpu.stat").ok()?,
            "usage_usec",
        )
    };
    let v1 = || {
        number("/sys/fs/cgroup/cpuacct/cpuacct.usage")
            .or_else(|| number("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"))
    };
    v2().map(|micros| micros.saturating_mul(1_000))
        .or_else(v1)
        .or_else(proc_cpu)
        .unwrap_or(0)
}

/// All cpus of the machine: the last resort.
fn proc_cpu() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; idle and iowait are not use.
    let used: u64 = ticks
        .iter()
        .take(8)
        .enumerate()
        .filter(|(i, _)| !matches!(i, 3 | 4))
        .map(|(_, n)| n)
        .sum();
    Some(used.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Bytes used without the page cache, and the cache.
fn memory() -> (u64, u64) {
    let v2 = || {
        let stat = fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
        Some((
            number("/sys/fs/cgroup/memory.current")?,
            field(&stat, "file")?,
        ))
    };
    let v1 = || {
        let stat = fs::read_to_string("/sys/fs/cgroup/memory/memory.stat").ok()?;
        let cache = field(&stat, "total_cache").or_else(|| field(&stat, "cache"))?;
        Some((
            number("/sys/fs/cgroup/memory/memory.usage_in_bytes")?,
            cache,
        ))
    };
    if let Some((usage, cache)) = v2().or_else(v1) {
        return (usage.saturating_sub(cache), cache);
    }
    let (total, available, cache) = proc_memory();
    (total.saturating_sub(available), cache)
}

fn proc_memory() -> (u64, u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = |name| field(&text, name).unwrap_or(0) << 10;
    (bytes("MemTotal"), bytes("MemAvailable"), bytes("Cached"))
}

fn disk() -> (u64, u64) {
    match rustix::fs::statvfs("/") {
        Ok(found) => {
            let total = found.f_blocks.saturating_mul(found.f_frsize);
            let free = found.f_bfree.saturating_mul(found.f_frsize);
            (total.saturating_sub(free), total)
        }
        Err(_) => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_three_kinds_of_files_are_read() {
        assert_eq!(field("usage_usec 12\nuser_usec 3\n", "user_usec"), Some(3));
        assert_eq!(
            field("MemTotal:       24 kB\nCached:  8 kB\n", "Cached"),
            Some(8)
        );
        assert_eq!(field("", "x"), None);
    }

    #[test]
    fn a_sample_is_plausible() {
        let sample = Metrics::new(Totals {
            memory: 512 << 20,
            cpus: 2,
            disk: 0,
        })
        .sample();
        assert_eq!((sample.mem_total_mib, sample.cpu_count), (512, 2));
        assert!(sample.disk_total > 0 && sample.disk_used <= sample.disk_total);
    }
}
