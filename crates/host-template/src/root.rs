//! The generated root: everything but `/usr`.

use std::path::{Path, PathBuf};

use crate::{
    Result,
    certificates::Certificates,
    etc,
    layer::{Layer, Owner, ROOT, USER},
    variable,
};

const BASHRC: &str = include_str!("files/bashrc");
const PROFILE: &str = include_str!("files/dot_profile");
const LOGOUT: &str = include_str!("files/bash_logout");

pub(crate) fn build(host: &Path, dir: &Path, certificates: &Certificates) -> Result<PathBuf> {
    let mut layer = Layer::start(dir, "root")?;
    merge_links(&mut layer, host)?;
    for name in [
        "usr", "proc", "sys", "dev", "run", "mnt", "media", "srv", "boot", "home", "opt",
    ] {
        layer.directory(name, 0o755, ROOT)?;
    }
    layer.directory("run/lock", 0o1777, ROOT)?;
    layer.directory("tmp", 0o1777, ROOT)?;
    home(&mut layer, "root", 0o700, ROOT)?;
    home(&mut layer, "home/user", 0o755, USER)?;
    etc::build(&mut layer, host, certificates)?;
    home(&mut layer, "etc/skel", 0o755, ROOT)?;
    variable::build(&mut layer, host)?;
    layer.finish(dir, "root")
}

/// `/bin`, `/lib64` and so on, as the host has them.
fn merge_links(layer: &mut Layer, host: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        if host.join("usr").join(name).exists() && host.join(name).is_symlink() {
            layer.link(name, &format!("usr/{name}"))?;
        }
    }
    Ok(())
}

fn home(layer: &mut Layer, path: &str, mode: u32, owner: Owner) -> Result<()> {
    layer.directory(path, mode, owner)?;
    layer.file(&format!("{path}/.bashrc"), BASHRC, 0o644, owner)?;
    layer.file(&format!("{path}/.profile"), PROFILE, 0o644, owner)?;
    layer.file(&format!("{path}/.bash_logout"), LOGOUT, 0o644, owner)
}
