//! Copying what a stopped sandbox added to its template into layers for others.
//!
//! The disk was written by hostile code, so nothing of it is trusted: it is mounted read-only where
//! nobody else sees it, and both trees are walked by open directories, one name at a time, with no
//! link followed. Ids on it are natural, as they must be in a layer.
//!
//! # Layout
//! - `tree`: the walk
//! - `entry`: one file, link or pipe
//! - `content`: the bytes of a file, holes left out
//! - `attributes`: owners, modes, times, extended attributes
//! - `links`: names that share a file go on sharing it

mod attributes;
mod content;
mod entry;
mod links;
mod tree;

use std::{fs::File, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, Stat, fstat, mkdirat, openat, syncfs},
    mount::{MountPropagationFlags, mount_change},
};
use soulbox_sys::clone::new_mount_namespace;
use soulbox_types::guest::{ExportSpec, InitStatus};

use crate::{
    disk,
    error::{Context, Failure},
    export::{links::Links, tree::Tree},
    read_spec, report,
};

/// To look at, or to make things in.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

pub(crate) fn run() -> Result<(), Failure> {
    let spec: ExportSpec = read_spec()?;
    new_mount_namespace().at("mount namespace")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).at("private mounts")?;
    let disk = disk::mount_to_read(&spec.disk)?;

    // Set-uid files with the host's ids: not for other users of the host to reach.
    mkdirat(CWD, &spec.target, Mode::RWXU).at("make the target")?;
    let target = openat(CWD, &spec.target, DIRECTORY, Mode::empty()).at("open the target")?;
    let mut overlays = Vec::new();
    for number in 0..spec.overlays {
        if copy_upper(&disk, number, &target)? {
            overlays.push(number);
        }
    }
    syncfs(&target).at("write out the layers")?;
    let parent = spec.target.parent().unwrap_or(Path::new("/"));
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .at("write out the layers")?;
    report(&InitStatus::Exported { overlays });
    Ok(())
}

/// Whether there was anything to copy.
fn copy_upper(disk: &OwnedFd, number: usize, target: &OwnedFd) -> Result<bool, Failure> {
    let source = openat(disk, format!("u{number}"), DIRECTORY, Mode::empty()).at("open layer")?;
    let stat = fstat(&source).at("open layer")?;
    if tree::is_empty(&source).at("read layer")? && is_as_made(&stat) {
        return Ok(false);
    }
    let (name, kept) = (number.to_string(), format!("{number}.links"));
    mkdirat(target, &*name, Mode::RWXU).at("make layer")?;
    let copy = openat(target, &*name, DIRECTORY, Mode::empty()).at("make layer")?;
    let links = Links::begin(target, &kept).at("make layer")?;
    let mut tree = Tree::new(links);
    tree.copy(source, copy)
        .at_with("copy layer", || tree.place())?;
    tree.finish(target, &kept).at("finish layer")?;
    Ok(true)
}

/// The disk's own directories belong to root and nobody has changed this one.
fn is_as_made(stat: &Stat) -> bool {
    stat.st_uid == 0 && stat.st_gid == 0 && stat.st_mode & 0o7777 == 0o755
}
