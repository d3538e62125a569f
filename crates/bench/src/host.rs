//! What the kernel reports about this machine: memory, and whether it is quiet.

mod processes;
mod quiet;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::time::sleep;

pub(crate) use quiet::{Busy, quiet};

use crate::Failure;

/// What was freed or is being written takes a moment to be seen.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
/// A machine that moves no more than this is still.
const STILL: i64 = 4 << 20;

/// In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) available: i64,
    pub(crate) slab: i64,
    /// Stacks, page tables and per-cpu areas.
    pub(crate) kernel: i64,
    /// Of all processes of the sandboxes and the server.
    pub(crate) pss: i64,
    pub(crate) private_dirty: i64,
    /// Of the server and its helpers.
    pub(crate) server_pss: i64,
    /// What the sandboxes' control groups are charged.
    pub(crate) charged: i64,
}

/// A reading when the machine's memory no longer moves, or after 15 s.
pub(crate) async fn settled(server: u32, data: PathBuf) -> Result<Reading, Failure> {
    let begun = Instant::now();
    let mut last = look(server, data.clone()).await?;
    loop {
        sleep(LOOK_AGAIN).await;
        let now = look(server, data.clone()).await?;
        let still = (now.available - last.available).abs() <= STILL;
        if still || begun.elapsed() > SETTLE_LIMIT {
            return Ok(now);
        }
        last = now;
    }
}

async fn look(server: u32, data: PathBuf) -> Result<Reading, Failure> {
    tokio::task::spawn_blocking(move || read(server, &data))
        .await
        .map_err(Failure::new)?
        .map_err(|error| Failure(format!("the machine's memory cannot be read: {error}")))
}

fn read(server: u32, data: &Path) -> io::Result<Reading> {
    let group = format!("soulbox-{}", tag(data)?);
    let memory = fs::read_to_string("/proc/meminfo")?;
    let of = |name: &str| kibibytes(&memory, name).unwrap_or_default();
    let processes = processes::measure(server, &group)?;
    Ok(Reading {
        available: of("MemAvailable:"),
        slab: of("Slab:"),
        kernel: of("KernelStack:") + of("PageTables:") + of("Percpu:"),
        pss: processes.sandboxes.pss + processes.server.pss,
        private_dirty: processes.sandboxes.private_dirty + processes.server.private_dirty,
        server_pss: processes.server.pss,
        charged: charged(Path::new("/sys/fs/cgroup"), &group)?,
    })
}

/// What marks everything of one server on the machine.
fn tag(data: &Path) -> io::Result<String> {
    let text = fs::read(data.join("instance.json"))?;
    let instance: serde_json::Value = serde_json::from_slice(&text)?;
    let tag = instance["tag"].as_str();
    tag.map(str::to_owned)
        .ok_or_else(|| io::Error::other("the server's instance.json has no tag"))
}

/// A line `Name:   12 kB`, in bytes.
pub(super) fn kibibytes(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number << 10)
}

/// v2 has one tree, v1 one per controller; the parent counts its children in both.
fn charged(root: &Path, group: &str) -> io::Result<i64> {
    let places = [
        root.join(group).join("memory.current"),
        root.join("memory")
            .join(group)
            .join("memory.usage_in_bytes"),
    ];
    let found = places
        .iter()
        .find_map(|place| fs::read_to_string(place).ok());
    // Without one, no sandbox has been made yet.
    let Some(text) = found else { return Ok(0) };
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("{group}: {text:?} is no number of bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read_as_bytes() {
        let text = "MemTotal:  10 kB\nMemAvailable:      8 kB\n";
        assert_eq!(kibibytes(text, "MemAvailable:"), Some(8 << 10));
        assert_eq!(kibibytes(text, "Slab:"), None);
    }

    #[test]
    fn charges_are_found_in_either_version_and_are_nothing_without_a_group() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(charged(root.path(), "soulbox-1").unwrap(), 0);
        let old = root.path().join("memory/soulbox-1");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("memory.usage_in_bytes"), "4096\n").unwrap();
        assert_eq!(charged(root.path(), "soulbox-1").unwrap(), 4096);
        let new = root.path().join("soulbox-1");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("memory.current"), "8192\n").unwrap();
        assert_eq!(charged(root.path(), "soulbox-1").unwrap(), 8192);
    }
}
