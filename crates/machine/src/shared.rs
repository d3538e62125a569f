//! Limits of the kernel that are one number for the whole machine: raised to where a sandbox's own
//! limits bound all of them together.
//!
//! - Open files: each is counted to the memory of its sandbox, so memory bounds them, of one and of
//!   all. A number below that only lets one sandbox take what others need. (systemd has removed it
//!   for the same reason, on most machines.)
//! - Terminals: each sandbox may have [`TERMINALS`].

use std::{io, path::Path};

use fs_err as fs;
use soulbox_types::guest::TERMINALS;

use crate::{Machine, blocking::blocking};

const SETTINGS: &str = "/proc/sys";
const FILES: &str = "fs/file-max";
const MOST_TERMINALS: &str = "kernel/pty/max";
/// Kept by the kernel for the terminals of the host itself.
const RESERVED_TERMINALS: &str = "kernel/pty/reserve";
/// More than any machine has memory for.
const ENOUGH_FILES: u64 = 1 << 40;
/// The kernel's own bound.
const ALL_TERMINALS: u64 = 1 << 20;

impl Machine {
    /// What could not be raised, with what to do about it.
    pub async fn raise_shared_limits(&self) -> Vec<String> {
        let most = self.config.max_sandboxes;
        let raised = blocking(move || {
            let accounted = fs::read_to_string("/proc/cmdline").is_ok_and(|line| {
                let word = line.split_whitespace();
                !word
                    .filter_map(|word| word.strip_prefix("cgroup.memory="))
                    .any(|value| value.split(',').any(|part| part == "nokmem"))
            });
            Ok(raise(Path::new(SETTINGS), most, accounted))
        });
        raised
            .await
            .unwrap_or_else(|error| vec![format!("limits of the kernel: {error}")])
    }
}

/// `accounted`: whether the kernel counts its own objects to the memory of those who make them.
fn raise(settings: &Path, max_sandboxes: u32, accounted: bool) -> Vec<String> {
    raise_by(settings, max_sandboxes, accounted, |path, value| {
        std::fs::write(path, value)
    })
}

fn raise_by(
    settings: &Path,
    max_sandboxes: u32,
    accounted: bool,
    write: impl Fn(&Path, &str) -> io::Result<()>,
) -> Vec<String> {
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(settings.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let reserve = read(RESERVED_TERMINALS).unwrap_or_default();
    let terminals = reserve.saturating_add(u64::from(max_sandboxes) * u64::from(TERMINALS));
    let mut wanted_limits = vec![(MOST_TERMINALS, terminals.min(ALL_TERMINALS))];
    let mut refused = Vec::new();
    if accounted {
        wanted_limits.push((FILES, ENOUGH_FILES));
    } else {
        refused.push(
            "one sandbox can use up the open files of this machine (fs.file-max): the kernel was \
             started with cgroup.memory=nokmem, so they are not counted to its memory"
                .to_owned(),
        );
    }
    for (name, wanted) in wanted_limits {
        // One that is not there is no limit.
        let Some(present) = read(name).filter(|present| *present < wanted) else {
            continue;
        };
        let key = name.replace('/', ".");
        match write(&settings.join(name), &wanted.to_string()) {
            Ok(()) => tracing::info!(key, present, wanted, "raised, for all sandboxes together"),
            Err(error) => refused.push(format!(
                "{key} is {present}, which some sandboxes could use up for all others, and cannot \
                 be raised from here ({error}): on the machine itself, sysctl -w {key}={wanted}"
            )),
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: u64, terminals: u64) -> tempfile::TempDir {
        let settings = tempfile::tempdir().unwrap();
        for (name, value) in [
            (FILES, files),
            (MOST_TERMINALS, terminals),
            (RESERVED_TERMINALS, 1024),
        ] {
            let path = settings.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        settings
    }

    fn values(settings: &tempfile::TempDir) -> [u64; 2] {
        [FILES, MOST_TERMINALS].map(|name| {
            let text = fs::read_to_string(settings.path().join(name)).unwrap();
            text.trim().parse().unwrap()
        })
    }

    #[test]
    fn what_is_too_low_for_all_sandboxes_is_raised_and_the_rest_stays() {
        let usual = machine(2_465_780, 4096);
        assert!(raise(usual.path(), 1000, true).is_empty());
        assert_eq!(values(&usual), [ENOUGH_FILES, 1024 + 64_000]);
        let large = machine(u64::try_from(i64::MAX).unwrap(), 500_000);
        assert!(raise(large.path(), 1000, true).is_empty());
        assert_eq!(values(&large), [i64::MAX.unsigned_abs(), 500_000]);
        assert!(raise(usual.path(), u32::MAX, true).is_empty());
        assert_eq!(values(&usual)[1], ALL_TERMINALS);
    }

    #[test]
    fn files_that_cost_no_memory_stay_bounded_by_their_number() {
        let machine = machine(2_465_780, 4096);
        let refused = raise(machine.path(), 1, false);
        assert!(refused[0].contains("nokmem"), "{refused:?}");
        assert_eq!(values(&machine), [2_465_780, 4096]);
    }

    #[test]
    fn what_cannot_be_raised_is_told_with_the_command() {
        let machine = machine(2_465_780, 4096);
        let refused = raise_by(machine.path(), 1000, true, |_, _| {
            Err(io::ErrorKind::ReadOnlyFilesystem.into())
        });
        for (said, command) in refused.iter().zip([
            "sysctl -w kernel.pty.max=65024",
            "sysctl -w fs.file-max=1099511627776",
        ]) {
            assert!(said.ends_with(command), "{said}");
        }
        assert_eq!((refused.len(), values(&machine)), (2, [2_465_780, 4096]));
    }
}
