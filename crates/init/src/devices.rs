//! A `/dev` with the few devices that every program expects, and none that touch the host.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
};

use rustix::mount::MountAttrFlags;
use soulbox_sys::idmap;
use soulbox_types::guest::InitSpec;

use crate::{
    error::{Context, Failure},
    mounts::{attach, memory, new_filesystem},
    root,
};

/// Character devices without state of their own, bound from the host.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// The group `tty`, which owns terminals.
const TTY_GROUP: u32 = 5;

pub(crate) fn mount(spec: &InitSpec) -> Result<(), Failure> {
    let step = "/dev";
    let dev = root::path(spec).join("dev");
    // Devices must work here and only here: every other mount is nodev.
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    memory(&dev, spec.id_base, 1 << 20, "0755", attributes).at(step)?;
    for name in NODES {
        let target = dev.join(name);
        File::create(&target).at(step)?;
        let node = idmap::restricted_copy(&Path::new("/dev").join(name), idmap::MOUNT_ATTR_NOEXEC)
            .at_with(step, || name.to_owned())?;
        attach(&node, &target).at_with(step, || name.to_owned())?;
    }
    for (name, target) in LINKS {
        symlink(target, dev.join(name)).at(step)?;
    }

    fs::create_dir(dev.join("pts")).at(step)?;
    let group = (spec.id_base + TTY_GROUP).to_string();
    let options = [
        ("mode", Some("0620")),
        ("ptmxmode", Some("0666")),
        ("gid", Some(group.as_str())),
        ("max", Some("1024")),
    ];
    attach(
        &new_filesystem("devpts", &options, attributes).at(step)?,
        &dev.join("pts"),
    )
    .at(step)?;

    fs::create_dir(dev.join("shm")).at(step)?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NODEV;
    memory(
        &dev.join("shm"),
        spec.id_base,
        spec.shm_bytes,
        "1777",
        attributes,
    )
    .at("/dev/shm")
}
