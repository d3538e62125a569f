//! A disk image, and an overlay over layers with shifted ids, as every sandbox has them.

use std::{
    fs::{self, OpenOptions},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{MountFlags, MountPropagationFlags, MoveMountFlags, mount, mount_change, move_mount},
    thread::{
        CapabilitiesSecureBits, Gid, Uid, UnshareFlags, set_capabilities_secure_bits,
        set_thread_res_gid, set_thread_res_uid,
    },
};
use soulbox_sys::{idmap, loopdev::LoopDevice};

use super::{
    Answer, IMAGE, Step,
    namespaces::{self, ID_BASE},
};

pub(super) fn disk(scratch: &Path) -> Answer {
    private_stage(scratch)?;
    let users = namespaces::user(ID_BASE)?;
    mount_image(&scratch.join(IMAGE), &users)?;
    let file = Path::new("disk/file");
    as_inside(|| fs::write(file, "text")).step("write to the image")?;
    let owner = fs::metadata(file).step("look at the image")?.uid();
    if owner != ID_BASE {
        return Err(format!(
            "a new file belongs to {owner} and not to {ID_BASE}"
        ));
    }
    Ok("made, attached, mounted with shifted ids, written to".into())
}

/// A device of one's own, which every sandbox has some of.
pub(super) fn device(scratch: &Path) -> Answer {
    private_stage(scratch)?;
    let (node, mode) = (Path::new("null"), Mode::from_raw_mode(0o666));
    mknodat(CWD, node, FileType::CharacterDevice, mode, makedev(1, 3)).step("make a device")?;
    fs::write(node, "text").step("write to it")?;
    Ok("made and written to".into())
}

pub(super) fn overlay(scratch: &Path, writable: bool) -> Answer {
    // A layer of our own on the data folder's file system; /usr may be on another.
    let own = scratch.join("layer");
    fs::create_dir_all(own.join("ours")).step("make a layer")?;
    private_stage(scratch)?;
    let users = namespaces::user(ID_BASE)?;
    for (name, source) in [("a", own.as_path()), ("b", Path::new("/usr"))] {
        fs::create_dir(name).step("make a layer")?;
        let attributes = idmap::MOUNT_ATTR_RDONLY | idmap::MOUNT_ATTR_NODEV;
        let shifted = idmap::shifted_copy(source, users.as_fd(), attributes)
            .step(&format!("shift the ids of {}", source.display()))?;
        attach(&shifted, name)?;
    }
    let mut options = "lowerdir=a:b".to_owned();
    if writable {
        mount_image(&scratch.join(IMAGE), &users)?;
        as_inside(|| fs::create_dir("disk/upper").and_then(|()| fs::create_dir("disk/work")))
            .step("prepare the image")?;
        options += ",upperdir=disk/upper,workdir=disk/work";
    }
    fs::create_dir("merged").step("make a mount point")?;
    let options = std::ffi::CString::new(options).step("options")?;
    as_inside(|| {
        let kind = "overlay";
        mount(
            kind,
            "merged",
            kind,
            MountFlags::empty(),
            options.as_c_str(),
        )?;
        Ok(())
    })
    .step("mount the overlay")?;
    for path in ["merged/bin", "merged/ours"] {
        let owner = fs::metadata(path).step("look through the overlay")?.uid();
        if owner != ID_BASE {
            return Err(format!("{path} belongs to {owner} and not to {ID_BASE}"));
        }
    }
    if writable {
        as_inside(|| fs::write("merged/bin/soulbox-doctor", "text"))
            .step("write through the overlay")?;
    }
    Ok("/usr and the data folder, with the owners shifted".into())
}

/// Leaves us in a small tmpfs that only this process sees.
fn private_stage(scratch: &Path) -> Result<(), String> {
    namespaces::enter(UnshareFlags::NEWNS).step("mount namespace")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("private mounts")?;
    let stage = scratch.join("stage");
    fs::create_dir_all(&stage).step("make a mount point")?;
    mount("tmpfs", &stage, "tmpfs", MountFlags::empty(), c"size=1m").step("mount a tmpfs")?;
    std::env::set_current_dir(&stage).step("enter the tmpfs")
}

/// The image at `disk`, with shifted ids. The loop device goes with our mount namespace.
fn mount_image(image: &Path, users: &OwnedFd) -> Result<(), String> {
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .step("open the image")?;
    let device = LoopDevice::attach(&image).step("attach the image")?;
    fs::create_dir("disk").step("make a mount point")?;
    mount(
        device.path(),
        "disk",
        "ext4",
        MountFlags::NODEV,
        None::<&std::ffi::CStr>,
    )
    .step("mount the image as ext4")?;
    std::os::unix::fs::chown("disk", Some(0), Some(0)).step("own the image")?;
    let shifted = idmap::shifted_copy(Path::new("disk"), users.as_fd(), idmap::MOUNT_ATTR_NODEV)
        .step("shift the ids of the image")?;
    attach(&shifted, "disk")
}

fn attach(tree: &OwnedFd, target: &str) -> Result<(), String> {
    move_mount(
        tree,
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .step(&format!("attach {target}"))
}

/// With the ids of root inside and the capabilities of root outside: the host's root has no place
/// in shifted ids, and what it would create there could not be stored.
fn as_inside<T>(action: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let become_id = |id: u32| -> std::io::Result<()> {
        set_thread_res_gid(Gid::ROOT, Gid::from_raw(id), Gid::ROOT)?;
        set_thread_res_uid(Uid::ROOT, Uid::from_raw(id), Uid::ROOT)?;
        Ok(())
    };
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    become_id(ID_BASE)?;
    let result = action();
    become_id(0)?;
    result
}
