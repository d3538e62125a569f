//! `soulbox-init` builds a jail around itself and becomes envd.
//!
//! It is a separate static program because it must be single-threaded: the server has threads,
//! and a clone of it could only make async-signal-safe calls. The story, step by step:
//!
//! ```text
//! init (real root)                      first process (real root, then root of the sandbox)
//!   read the prepared slot
//!   join the cgroups, the network namespace; resource limits
//!   make the user namespace
//!   wait for the spec: long, if it is ahead of its time
//!   a private mount namespace
//!   disk, snapshots, layers, overlays
//!   copies of what the host shows
//!   clone: pid, ipc, uts, cgroup  ────►  host name; pivot_root: the host is out of sight
//!   report the pid, exit                 /usr, /dev, /sys, /run, /proc, volumes
//!                                        enter the user namespace: from here on nobody outside
//!                                        ids, seccomp, capabilities
//!                                        execute envd
//! ```
//!
//! All namespaces but the user one belong to the host, so root inside has no power over them.
//! Nothing here needs undoing on failure: every mount lives in a namespace that dies with us.
//!
//! It is not executed for each sandbox: one waits for the server's word and forks ([`fork_server`]).
//!
//! With the argument `export` it copies what a sandbox added to its template out of its disk
//! instead ([`export`]); that too needs mounts that nobody else sees.

mod disk;
mod drop;
mod error;
mod export;
mod first_process;
mod fork_server;
mod host_mounts;
mod inside;
mod limits;
mod mounts;
mod root;
mod user_namespace;

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::fd::AsFd,
    process::ExitCode,
};

use rustix::{
    pipe::PipeFlags,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use soulbox_sys::clone::{Cloned, Parent, clone_process, new_mount_namespace};
use soulbox_types::guest::{EXPORT, FORK_SERVER, InitSpec, InitStatus, PreparedSpec};

use crate::{
    error::{Context, Failure},
    fork_server::Role,
};

/// A spec is some kilobytes; env vars are bounded by the control plane.
const MAX_SPEC_BYTES: u64 = 4 << 20;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let result = match mode.as_str() {
        EXPORT => export::run(),
        FORK_SERVER => fork_server::serve().and_then(|role| match role {
            Role::Copy => run(),
            Role::Done => Ok(()),
        }),
        _ => run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure.status());
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut input = BufReader::new(std::io::stdin().take(MAX_SPEC_BYTES));
    let prepared: PreparedSpec = read_line(&mut input)?;
    join_cgroups(&prepared)?;
    enter_network(&prepared)?;
    limits::apply()?;
    let user_namespace = user_namespace::create(prepared.id_base)?;
    report(&InitStatus::Waiting);
    let Some(spec) = await_spec(&mut input)? else {
        return Ok(());
    };
    // Opened before the root changes. The file is shared by all sandboxes, so are its pages.
    let envd = std::fs::File::open(&spec.envd).at("open envd")?;
    // Not ahead of time: it would not show what the host mounts meanwhile, such as volumes.
    new_mount_namespace().at("mount namespace")?;
    let root::Root { inner, disk } = root::assemble(&spec, &user_namespace)?;
    let host_mounts = host_mounts::collect(&spec, &user_namespace)?;

    let namespaces =
        libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
    let (reported, report_sent) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).at("pipe")?;
    match clone_process(namespaces, Parent::Grandparent).at("clone the first process")? {
        Cloned::Child => {
            // Our pid must be on record before envd says that it is ready on the same pipe.
            drop(report_sent);
            rustix::io::read(&reported, &mut [0; 1]).at("wait for the report")?;
            drop(reported);
            Err(first_process::become_envd(
                &spec,
                &envd,
                &user_namespace,
                &inner,
                &host_mounts,
            ))
        }
        Cloned::Parent(pid) => {
            report(&InitStatus::Started { pid, disk });
            drop(report_sent);
            Ok(())
        }
    }
}

fn read_line<T: serde::de::DeserializeOwned>(input: &mut impl BufRead) -> Result<T, Failure> {
    let mut text = String::new();
    input.read_line(&mut text).at("read the prepared slot")?;
    serde_json::from_str(&text)
        .map_err(std::io::Error::other)
        .at("parse the prepared slot")
}

/// `None`: the server is gone, or needs this slot no more.
fn await_spec(input: &mut impl Read) -> Result<Option<InitSpec>, Failure> {
    let mut text = String::new();
    input.read_to_string(&mut text).at("read the spec")?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&text)
        .map(Some)
        .map_err(std::io::Error::other)
        .at("parse the spec")
}

fn read_spec<T: serde::de::DeserializeOwned>() -> Result<T, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_SPEC_BYTES)
        .read_to_string(&mut text)
        .at("read the spec")?;
    serde_json::from_str(&text)
        .map_err(std::io::Error::other)
        .at("parse the spec")
}

/// First of all, so that whatever this program uses is already counted to the sandbox, and the
/// cgroup namespace made later has the sandbox's group as its root.
fn join_cgroups(prepared: &PreparedSpec) -> Result<(), Failure> {
    for file in &prepared.cgroup_joins {
        std::fs::write(file, "0").at("join cgroup")?;
    }
    Ok(())
}

fn enter_network(prepared: &PreparedSpec) -> Result<(), Failure> {
    let namespace =
        std::fs::File::open(&prepared.network_namespace).at("open network namespace")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .at("enter network namespace")
}

fn report(status: &InitStatus) {
    if let Ok(mut line) = serde_json::to_vec(status) {
        line.push(b'\n');
        // The reader may be gone (a killed server): nobody is left to read it.
        let _gone = std::io::stdout().write_all(&line);
    }
}
