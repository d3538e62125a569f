//! The sandbox's first process: finishes the root from inside, gives up all power, becomes envd.

use std::{
    convert::Infallible,
    fs::File,
    io::{Seek, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::MemfdFlags,
    mount::{MountAttrFlags, UnmountFlags, unmount},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use soulbox_sys::{exec, idmap};
use soulbox_types::guest::{CONFIG_FD, InitSpec, READY_FD};

use crate::{
    drop,
    error::{Context, Failure},
    mounts::{attach, memory, new_filesystem},
    root,
};

pub(crate) fn become_envd(spec: &InitSpec, envd: &File, user_namespace: &OwnedFd) -> Failure {
    match prepare(spec, envd, user_namespace) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn prepare(spec: &InitSpec, envd: &File, user_namespace: &OwnedFd) -> Result<Infallible, Failure> {
    // Our own session: no terminal of the host can be ours.
    rustix::process::setsid().at("session")?;
    rustix::system::sethostname(spec.hostname.as_bytes()).at("host name")?;
    mount_proc(spec)?;
    enter_root(&root::path(spec))?;
    let config = config_file(spec)?;

    move_into_link_name_space(user_namespace.as_fd(), Some(LinkNameSpaceType::User))
        .at("enter user namespace")?;
    drop::become_sandbox_root().at("ids")?;
    drop::limit_resources().at("resource limits")?;
    drop::forbid(spec)?;

    // envd finds its files at fixed numbers: move whatever we hold out of their way first.
    let step = "descriptors";
    let envd = out_of_the_way(envd).at(step)?;
    let ready = out_of_the_way(std::io::stdout()).at(step)?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .at(step)?;
    let null = out_of_the_way(null).at(step)?;
    exec::close_on_exec_from(3).at(step)?;
    exec::place_at(config.as_fd(), CONFIG_FD).at(step)?;
    exec::place_at(ready.as_fd(), READY_FD).at(step)?;
    exec::place_at(null.as_fd(), 0).at(step)?;
    exec::place_at(null.as_fd(), 1).at(step)?;
    let error = exec::execute_file(envd.as_fd(), &[c"soulbox-envd"], &[]);
    // Still here: the failure must find its way to the server.
    exec::place_at(ready.as_fd(), 1).at(step)?;
    Err(error).at("execute envd")
}

fn out_of_the_way(file: impl AsFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(file, 16)
}

/// A fresh `/proc` of the new pid namespace. It belongs to the host's user namespace, so its
/// sysctls are not writable inside; hiding the rest is a second wall.
fn mount_proc(spec: &InitSpec) -> Result<(), Failure> {
    let step = "/proc";
    let root = root::path(spec);
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    attach(
        &new_filesystem("proc", &[], attributes).at(step)?,
        &root.join("proc"),
    )
    .at(step)?;
    for path in &spec.read_only {
        let target = inside(&root, path);
        if target.exists() {
            let copy = idmap::restricted_copy(&target, idmap::MOUNT_ATTR_RDONLY).at(step)?;
            attach(&copy, &target).at_with(step, || path.display().to_string())?;
        }
    }
    for path in &spec.masked {
        let target = inside(&root, path);
        if target.is_dir() {
            let attributes = attributes | MountAttrFlags::MOUNT_ATTR_RDONLY;
            memory(&target, spec.id_base, 4096, "0555", attributes).at(step)?;
        } else if target.exists() {
            let null = idmap::restricted_copy(&root.join("dev/null"), 0).at(step)?;
            attach(&null, &target).at_with(step, || path.display().to_string())?;
        }
    }
    Ok(())
}

fn inside(root: &Path, path: &Path) -> std::path::PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Both arguments of `pivot_root` may be the same directory: the old root is then stacked on top
/// of the new one and can be detached at once, with no place needed to put it.
fn enter_root(root: &Path) -> Result<(), Failure> {
    let step = "pivot_root";
    std::env::set_current_dir(root).at(step)?;
    rustix::process::pivot_root(".", ".").at(step)?;
    unmount(".", UnmountFlags::DETACH).at(step)?;
    std::env::set_current_dir("/").at(step)
}

/// envd's configuration in memory.
fn config_file(spec: &InitSpec) -> Result<OwnedFd, Failure> {
    let step = "envd configuration";
    let text = serde_json::to_vec(&spec.envd_config)
        .map_err(std::io::Error::other)
        .at(step)?;
    let memory = rustix::fs::memfd_create("envd-config", MemfdFlags::CLOEXEC).at(step)?;
    let mut file = File::from(memory);
    file.write_all(&text).at(step)?;
    file.rewind().at(step)?;
    out_of_the_way(&file).at(step)
}
