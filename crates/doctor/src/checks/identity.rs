//! Who we are, and on which kernel.

use rustix::{
    process::Uid,
    thread::{CapabilitySet, capabilities},
};

use crate::report::Finding;

/// Idmapped layers below an overlay.
const OLDEST: (u32, u32) = (5, 19);

const NEEDED: [(CapabilitySet, &str); 11] = [
    (CapabilitySet::CHOWN, "chown"),
    (CapabilitySet::DAC_OVERRIDE, "dac_override"),
    (CapabilitySet::FOWNER, "fowner"),
    (CapabilitySet::KILL, "kill"),
    (CapabilitySet::SETGID, "setgid"),
    (CapabilitySet::SETUID, "setuid"),
    (CapabilitySet::SETPCAP, "setpcap"),
    (CapabilitySet::NET_ADMIN, "net_admin"),
    (CapabilitySet::SYS_CHROOT, "sys_chroot"),
    (CapabilitySet::SYS_ADMIN, "sys_admin"),
    (CapabilitySet::MKNOD, "mknod"),
];

/// Who we are, unless that is root.
pub(crate) fn other_user() -> Option<Uid> {
    let uid = rustix::process::geteuid();
    (!uid.is_root()).then_some(uid)
}

pub(crate) fn root() -> Finding {
    if let Some(uid) = other_user() {
        return Finding::fail(
            format!("running as uid {}", uid.as_raw()),
            "SoulBox makes namespaces and mounts: run it as root (sudo soulbox …)",
        );
    }
    let effective = match capabilities(None) {
        Ok(sets) => sets.effective,
        Err(error) => return Finding::fail(format!("capget: {error}"), "run it on Linux as root"),
    };
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|(cap, _)| !effective.contains(*cap))
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        return Finding::fail(
            format!("root without the capabilities {}", missing.join(", ")),
            "in a container, start it with --privileged",
        );
    }
    if !effective.contains(CapabilitySet::SYS_RESOURCE) {
        return Finding::warn(
            "root, without sys_resource",
            "limits on open files cannot be raised above the hard limit; set it before the start",
        );
    }
    Finding::ok("root with every capability that is needed")
}

pub(crate) fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn kernel() -> Finding {
    let release = release();
    match version(&release) {
        Some(version) if version >= OLDEST => Finding::ok(release),
        _ => Finding::fail(
            format!("Linux {release}"),
            format!("SoulBox needs Linux {}.{} or later", OLDEST.0, OLDEST.1),
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("6.18.44-fc-v445"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert!(version("5.4").unwrap() < OLDEST && version("6.1.0-9-amd64").unwrap() >= OLDEST);
        assert_eq!(version("linux"), None);
    }
}
