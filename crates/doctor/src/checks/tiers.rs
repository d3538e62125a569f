//! What the other isolation tiers would need.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{child, report::Finding};

const RUNSC_LIMIT: Duration = Duration::from_secs(20);
const BOOT_LIMIT: Duration = Duration::from_secs(10);
const DOCKER_LIMIT: Duration = Duration::from_secs(3);
const DOCKER_SOCKET: &str = "/var/run/docker.sock";

/// Runs a program in a gVisor sandbox.
pub(crate) fn runsc() -> Finding {
    let Some(runsc) = child::find("runsc") else {
        return Finding::skipped("runsc is not installed");
    };
    let arguments = ["--network=none", "--ignore-cgroups", "do", "echo", "inside"];
    match child::run(&runsc, arguments, &[], "", RUNSC_LIMIT) {
        Err(error) => Finding::fail(error.to_string(), "install runsc again"),
        Ok(done) => match done.success {
            Some(true) if done.stdout.contains("inside") => Finding::ok("a program ran in it"),
            Some(_) => Finding::fail(
                done.complaint(),
                "try `runsc do true` for the whole message",
            ),
            None => Finding::fail(
                "a program in it did not end",
                "a newer runsc, or another platform",
            ),
        },
    }
}

/// Boots the machine's own kernel in a virtual machine until it misses its disk. Opening
/// `/dev/kvm` proves little: there are machines on which it opens and every guest hangs.
pub(crate) fn boot() -> Finding {
    if !Path::new("/dev/kvm").exists() {
        return Finding::skipped("no /dev/kvm");
    }
    let Some(qemu) = child::find(&format!("qemu-system-{}", std::env::consts::ARCH)) else {
        return Finding::unknown(format!(
            "it takes qemu-system-{} to try, which is not installed",
            std::env::consts::ARCH
        ));
    };
    let Some(kernel) = host_kernel() else {
        return Finding::unknown("it takes a kernel image in /boot to try");
    };
    let kernel = kernel.display().to_string();
    let arguments = [
        "-enable-kvm",
        "-cpu",
        "host",
        "-m",
        "256",
        "-nodefaults",
        "-nographic",
        "-no-reboot",
        "-serial",
        "stdio",
        "-monitor",
        "none",
        "-net",
        "none",
        "-kernel",
        &kernel,
        "-append",
        "console=ttyS0 panic=-1 root=none",
    ];
    match child::run(&qemu, arguments, &[], "", BOOT_LIMIT) {
        Err(error) => Finding::fail(error.to_string(), "install qemu again"),
        Ok(done) if done.stdout.contains("Linux version") => Finding::ok("a Linux guest booted"),
        Ok(done) => {
            let what = if done.success.is_none() {
                format!("a guest was silent for {} s", BOOT_LIMIT.as_secs())
            } else {
                done.complaint()
            };
            Finding::fail(
                what,
                "switch on (nested) virtualisation, or use another machine",
            )
        }
    }
}

fn host_kernel() -> Option<PathBuf> {
    let release = super::identity::release();
    [
        format!("/boot/vmlinuz-{release}"),
        "/boot/vmlinuz".into(),
        "/vmlinuz".into(),
    ]
    .into_iter()
    .map(PathBuf::from)
    .find(|path| path.is_file())
}

/// Whether a Docker daemon answers.
pub(crate) fn docker() -> Finding {
    let socket = Path::new(DOCKER_SOCKET);
    if !socket.exists() {
        return Finding::skipped(format!("no {DOCKER_SOCKET}"));
    }
    let ping = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(DOCKER_LIMIT))?;
        stream.set_write_timeout(Some(DOCKER_LIMIT))?;
        stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match ping() {
        Ok(answer) if answer.trim_end().ends_with("OK") => Finding::ok("the daemon answers"),
        Ok(answer) => Finding::fail(
            answer.lines().next().unwrap_or("no answer").to_owned(),
            "look at the daemon's log",
        ),
        Err(error) => Finding::fail(error.to_string(), "start the Docker daemon"),
    }
}
