//! The sandbox's first process: finishes the root from inside, drops all privileges, becomes envd.

use std::{
    convert::Infallible,
    fs::File,
    io::{Seek, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::MemfdFlags,
    mount::{UnmountFlags, unmount},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use soulbox_sys::exec;
use soulbox_types::guest::{CONFIG_FD, InitSpec, READY_FD};

use crate::{
    drop,
    error::{Context, Failure},
    host_mounts::HostMounts,
    inside, root,
};

pub(crate) fn become_envd(
    spec: &InitSpec,
    envd: &File,
    user_namespace: &OwnedFd,
    overlays: &[(PathBuf, OwnedFd)],
    host_mounts: &HostMounts,
) -> Failure {
    match prepare(spec, envd, user_namespace, overlays, host_mounts) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn prepare(
    spec: &InitSpec,
    envd: &File,
    user_namespace: &OwnedFd,
    overlays: &[(PathBuf, OwnedFd)],
    host_mounts: &HostMounts,
) -> Result<Infallible, Failure> {
    // Our own session: no terminal of the host can be ours.
    rustix::process::setsid().at("session")?;
    rustix::system::sethostname(spec.hostname.as_bytes()).at("host name")?;
    enter_root(&root::path(spec))?;
    inside::finish(spec, overlays, host_mounts)?;
    let config = config_file(spec)?;

    move_into_link_name_space(user_namespace.as_fd(), Some(LinkNameSpaceType::User))
        .at("enter user namespace")?;
    drop::become_sandbox_root().at("ids")?;
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
    // No file of the host stays open in envd: whoever got hold of it could fill the host's disk.
    exec::place_at(null.as_fd(), 2).at(step)?;
    let error = exec::execute_file(envd.as_fd(), &[c"soulbox-envd"], &[]);
    // Still here: the failure must find its way to the server.
    exec::place_at(ready.as_fd(), 1).at(step)?;
    Err(error).at("execute envd")
}

fn out_of_the_way(file: impl AsFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(file, 16)
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
