//! Files that are the same in every sandbox of this node, above the template's layers.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use fs_err as fs;
use soulbox_net::Ipv4Net;
use soulbox_runtime::{Error, Result};

use crate::machine::HOSTNAME;

/// Where a sandbox's own mounts and everybody's files go, with their modes: an image may lack them,
/// or have a link there.
const PLACES: [(&str, u32); 5] = [
    ("dev", 0o755),
    ("proc", 0o755),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
];

/// `/etc` files that depend on the node, not on the template or the sandbox.
pub(crate) fn write(data_dir: &Path, range: Ipv4Net) -> Result<PathBuf> {
    let failed = |e| Error::io("could not write the node's layer", e);
    let layer = data_dir.join("layers/node");
    let etc = layer.join("etc");
    fs::create_dir_all(&etc).map_err(failed)?;
    let gateway = range
        .nth(1)
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let resolver = format!("nameserver {gateway}\n");
    let hosts = format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost ip6-localhost\n");
    for (name, text) in [
        ("resolv.conf", resolver),
        ("hosts", hosts),
        ("hostname", format!("{HOSTNAME}\n")),
    ] {
        // Sandboxes that run have the old file open as a lower layer: replace, never rewrite.
        let path = etc.join(name);
        if fs::read_to_string(&path).is_ok_and(|known| known == text) {
            continue;
        }
        let new = layer.join(format!("{name}.new"));
        fs::write(&new, text).map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)?;
    }
    for folder in [&layer, &etc] {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(failed)?;
    }
    for (name, mode) in PLACES {
        let place = layer.join(name);
        fs::create_dir_all(&place).map_err(failed)?;
        fs::set_permissions(&place, Permissions::from_mode(mode)).map_err(failed)?;
    }
    Ok(layer)
}
