//! Disk space and memory for sandboxes, and the kernel's limits that many of them would reach.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use soulbox_types::disk_reserve;

use super::{Scratch, identity};
use crate::{Environment, Problem, child, report::Finding, scratch::nearest_folder};

const GIB: u64 = 1 << 30;
const COMFORTABLE_FREE: u64 = 10 * GIB;

/// Whether there is a place for what the server keeps.
pub(crate) fn folder(scratch: &Scratch, data_dir: &Path) -> Finding {
    match scratch.path() {
        Ok(_) => Finding::ok("can be written to"),
        Err(message) => Finding::fail(message, Environment::detect(data_dir).writable()),
    }
}

/// Whether there is room for sandboxes, in the words of a server that is about to start.
pub(crate) fn space(data_dir: &Path, min_free_disk: u64) -> Finding {
    match look(data_dir, min_free_disk) {
        Err(Problem { what, advice }) => Finding::fail(what, advice),
        Ok((free, near)) => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "one digit after the point is shown"
            )]
            let detail = format!("{:.1} GiB on {}", free as f64 / GIB as f64, near.display());
            if free < COMFORTABLE_FREE {
                let advice =
                    "soon used up: free some more, or choose another folder with --data-dir";
                return Finding::warn(detail, advice);
            }
            Finding::ok(detail)
        }
    }
}

/// Below the server's reserve no sandbox is made. Blocking.
pub fn free_space(data_dir: &Path, min_free_disk: u64) -> Result<(), Problem> {
    look(data_dir, min_free_disk).map(drop)
}

fn look(data_dir: &Path, min_free_disk: u64) -> Result<(u64, &Path), Problem> {
    let near = nearest_folder(data_dir);
    let disk = rustix::fs::statvfs(near).map_err(|error| Problem {
        what: format!("{}: {error}", near.display()),
        advice: "choose another folder with --data-dir".into(),
    })?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let total = disk.f_blocks.saturating_mul(disk.f_frsize);
    let reserve = disk_reserve(total, min_free_disk);
    judge(free, reserve, near)?;
    Ok((free, near))
}

fn judge(free: u64, reserve: u64, near: &Path) -> Result<(), Problem> {
    if free >= reserve {
        return Ok(());
    }
    Err(Problem {
        what: format!(
            "{} has {} MiB of free space, and no sandbox is made below {} MiB",
            near.display(),
            free >> 20,
            reserve >> 20
        ),
        advice: "free some space, choose another folder with --data-dir, or keep less free with \
                 --min-free-disk-mb"
            .into(),
    })
}

/// Whether disk images can be formatted and attached.
pub(crate) fn programs() -> Finding {
    if child::find("mkfs.ext4").is_none() {
        return Finding::fail("mkfs.ext4 is not installed", "install e2fsprogs");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Finding::fail(
            "no /dev/loop-control",
            "modprobe loop, or give the container /dev",
        );
    }
    Finding::ok("mkfs.ext4 and loop devices are there")
}

/// A limit, the least that a busy node wants, and how to raise it.
const LIMITS: [(&str, u64, &str); 4] = [
    ("kernel/pid_max", 65_536, "sysctl -w kernel.pid_max=4194304"),
    (
        "fs/inotify/max_user_instances",
        128,
        "sysctl -w fs.inotify.max_user_instances=1024",
    ),
    (
        "user/max_user_namespaces",
        1_024,
        "sysctl -w user.max_user_namespaces=65536",
    ),
    // Sandboxes may have half of it together.
    (
        "net/netfilter/nf_conntrack_max",
        65_536,
        "sysctl -w net.netfilter.nf_conntrack_max=262144",
    ),
];
/// What the server raises when it starts, where it may.
const RAISED: [(&str, u64, &str); 2] = [
    (
        "fs/file-max",
        1 << 30,
        "sysctl -w fs.file-max=9223372036854775807",
    ),
    ("kernel/pty/max", 65_536, "sysctl -w kernel.pty.max=65536"),
];
const FILES: u64 = 65_536;
/// What the server refuses to start with less of.
const LEAST_FILES: u64 = 100;

/// A process that writes past this limit is killed, in the middle of whatever it does.
pub fn file_size_limit() -> Result<(), Problem> {
    let limit = getrlimit(Resource::Fsize).maximum;
    limit.map_or(Ok(()), |bytes| {
        Err(Problem {
            what: format!("the hard limit of file size is {bytes} bytes"),
            advice: "start it with `ulimit -Hf unlimited`, or with LimitFSIZE=infinity in its unit"
                .into(),
        })
    })
}

pub(crate) fn open_files() -> Finding {
    // Another user's limit says nothing about root's.
    if identity::other_user().is_some() {
        return Finding::unknown("needs root");
    }
    let Some(files) = getrlimit(Resource::Nofile).maximum else {
        return Finding::ok("no limit");
    };
    let detail = format!("the hard limit of open files is {files}");
    let advice =
        "`ulimit -Hn 1048576` before the start, or LimitNOFILE=1048576 in the server's unit";
    match files {
        ..LEAST_FILES => Finding::fail(detail, advice),
        LEAST_FILES..FILES => Finding::warn(detail, advice),
        _ => Finding::ok(detail),
    }
}

pub(crate) fn limits() -> Finding {
    limits_in(Path::new("/proc/sys"))
}

fn limits_in(settings: &Path) -> Finding {
    let mut low = Vec::new();
    let mut advice = Vec::new();
    let own = RAISED.iter().filter(|(name, ..)| {
        let mut writing = std::fs::OpenOptions::new();
        writing.write(true).open(settings.join(name)).is_err()
    });
    for (name, least, how) in LIMITS.iter().chain(own) {
        let text = std::fs::read_to_string(settings.join(name)).unwrap_or_default();
        if let Ok(value) = text.trim().parse::<u64>()
            && value < *least
        {
            low.push(format!("{} is {value}", name.replace('/', ".")));
            advice.push((*how).to_owned());
        }
    }
    if low.is_empty() {
        Finding::ok("high enough for hundreds of sandboxes")
    } else {
        Finding::warn(low.join(", "), advice.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    #[test]
    fn low_limits_are_told_with_what_raises_them() {
        let settings = tempfile::tempdir().unwrap();
        assert_eq!(limits_in(settings.path()).outcome, Outcome::Ok);
        let write = |name: &str, value: u64| {
            let path = settings.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        };
        // The server raises these by itself.
        write("fs/file-max", 2_465_780);
        write("kernel/pty/max", 4096);
        write("net/netfilter/nf_conntrack_max", 262_144);
        assert_eq!(limits_in(settings.path()).outcome, Outcome::Ok);
        write("net/netfilter/nf_conntrack_max", 8192);
        let finding = limits_in(settings.path());
        assert_eq!(finding.outcome, Outcome::Warn);
        assert_eq!(finding.detail, "net.netfilter.nf_conntrack_max is 8192");
        let advice = finding.advice.unwrap_or_default();
        assert!(advice.contains("nf_conntrack_max=262144"), "{advice}");
    }

    #[test]
    fn less_than_the_reserve_is_told_with_both_figures_and_what_to_do() {
        let near = Path::new("/data");
        assert!(judge(1 << 30, 1 << 30, near).is_ok());
        let said = judge((1 << 30) - 1, 1 << 30, near).unwrap_err().to_string();
        for part in [
            "/data has 1023 MiB",
            "below 1024 MiB",
            "--data-dir",
            "--min-free-disk-mb",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn the_doctor_and_a_start_say_the_same() {
        let here = tempfile::tempdir().unwrap();
        let too_much = u64::MAX;
        let problem = free_space(here.path(), too_much).unwrap_err();
        let finding = space(here.path(), too_much);
        assert_eq!(finding.outcome, Outcome::Fail);
        assert_eq!(finding.detail, problem.what);
        assert_eq!(finding.advice, Some(problem.advice));
    }
}
