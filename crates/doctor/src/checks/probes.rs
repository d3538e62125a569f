//! Checks that happen in a copy of this program.

use std::{ffi::OsStr, path::Path, time::Duration};

use super::{Scratch, storage};
use crate::{
    PROBE_COMMAND,
    child::{self, Finished},
    probe::{self, GREETING, SCRATCH_VARIABLE},
    report::{Finding, Outcome},
};

/// Most take milliseconds; the first may have the kernel load modules from a slow disk.
const LIMIT: Duration = Duration::from_secs(30);
const IMAGE_BYTES: u64 = 32 << 20;
const PRIVILEGED: &str = "run it on the host itself or in a container with --privileged";

pub(crate) fn namespaces(scratch: &Scratch) -> Finding {
    ask(
        "namespaces",
        scratch,
        "user.max_user_namespaces must not be 0; or else ",
        PRIVILEGED,
    )
}

/// With a writable layer on a disk image, as a sandbox has it.
pub(crate) fn overlay(scratch: &Scratch) -> Finding {
    match make_image(scratch) {
        Err(finding) => finding,
        Ok(()) => overlay_advice("overlay", scratch),
    }
}

/// Without a disk image: takes milliseconds.
pub(crate) fn overlay_read_only(scratch: &Scratch) -> Finding {
    overlay_advice("overlay-read-only", scratch)
}

fn overlay_advice(name: &str, scratch: &Scratch) -> Finding {
    ask(
        name,
        scratch,
        "the file systems of /usr and of the data folder must support idmapped mounts (ext4, xfs, \
         btrfs do; overlay and zfs may not), and ",
        "modprobe overlay must work",
    )
}

pub(crate) fn disk(scratch: &Scratch) -> Finding {
    let programs = storage::programs();
    if programs.outcome == Outcome::Fail {
        return programs;
    }
    match make_image(scratch) {
        Err(finding) => finding,
        Ok(()) => ask("disk", scratch, "modprobe loop ext4; or else ", PRIVILEGED),
    }
}

fn make_image(scratch: &Scratch) -> Result<(), Finding> {
    let advice = "install e2fsprogs, and choose a --data-dir that can be written to";
    let made = || -> Result<(), String> {
        let image = scratch.path()?.join(probe::IMAGE);
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(|error| format!("{}: {error}", image.display()))?;
        let mkfs = child::find("mkfs.ext4").ok_or("mkfs.ext4 is not installed")?;
        // The loop device reads and writes whole pages.
        let arguments = ["-qF", "-b", "4096"].map(OsStr::new);
        let arguments = arguments.into_iter().chain([image.as_os_str()]);
        let done = child::run(&mkfs, arguments, &[], "", LIMIT).map_err(|e| e.to_string())?;
        if done.success == Some(true) {
            Ok(())
        } else {
            Err(done.complaint())
        }
    };
    made().map_err(|message| Finding::fail(message, advice))
}

/// Without, sandboxes work, with one thing less between them.
pub(crate) fn device(scratch: &Scratch) -> Finding {
    let finding = ask(
        "device",
        scratch,
        "sandboxes get the host's own /dev/null and the like, on which they can lock and watch each \
         other: allow mknod (DeviceAllow=char-mem rwm in a unit, --privileged for a container)",
        "",
    );
    match finding.outcome {
        Outcome::Fail => Finding {
            outcome: Outcome::Warn,
            ..finding
        },
        _ => finding,
    }
}

pub(crate) fn nft_present() -> Finding {
    match child::find("nft") {
        Some(path) => Finding::ok(path.display().to_string()),
        None => Finding::fail("nft is not installed", "install nftables"),
    }
}

/// In a network namespace of its own: the host's rules are not touched.
pub(crate) fn nftables(scratch: &Scratch) -> Finding {
    let present = nft_present();
    if present.outcome == Outcome::Fail {
        return present;
    }
    ask(
        "nftables",
        scratch,
        "modprobe nf_tables nft_masq nft_ct; or else ",
        PRIVILEGED,
    )
}

pub(crate) fn network(scratch: &Scratch) -> Finding {
    ask("network", scratch, "modprobe veth; or else ", PRIVILEGED)
}

pub(crate) fn seccomp(scratch: &Scratch) -> Finding {
    ask(
        "seccomp",
        scratch,
        "a kernel with CONFIG_SECCOMP_FILTER; or else ",
        PRIVILEGED,
    )
}

pub(crate) fn kvm(scratch: &Scratch) -> Finding {
    if !Path::new("/dev/kvm").exists() {
        return Finding::skipped("no /dev/kvm");
    }
    ask(
        "kvm",
        scratch,
        "switch on (nested) virtualisation for this machine",
        "",
    )
}

fn ask(name: &str, scratch: &Scratch, advice: &str, more: &str) -> Finding {
    if std::env::var_os(SCRATCH_VARIABLE).is_some() {
        // A program that does not know the subcommand would start itself over and over.
        return Finding::unknown("already inside a probe");
    }
    let dir = match scratch.path() {
        Ok(dir) => dir,
        Err(message) => return Finding::skipped(format!("not tried: {message}")),
    };
    let environment = [(SCRATCH_VARIABLE, dir.as_os_str())];
    let this = Path::new("/proc/self/exe");
    let asked = child::run(this, [PROBE_COMMAND, name], &environment, "", LIMIT)
        .map_err(|error| format!("could not start {}: {error}", this.display()));
    let advice = format!("{advice}{more}");
    match asked {
        Err(message) => Finding::fail(message, advice),
        Ok(done) => judge(&done, advice),
    }
}

fn judge(done: &Finished, advice: String) -> Finding {
    let Some(answer) = done.stdout.strip_prefix(GREETING) else {
        return Finding::unknown("this program does not answer probes");
    };
    match done.success {
        Some(true) => Finding::ok(answer.trim()),
        Some(false) if answer.trim().is_empty() => Finding::fail(done.complaint(), advice),
        Some(false) => Finding::fail(answer.trim(), advice),
        None => Finding::fail(format!("no end after {} s", LIMIT.as_secs()), advice),
    }
}
