//! The guest programs, built statically and carried inside the server.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use fs_err as fs;
use sha2::{Digest, Sha256};

const ENVD: &[u8] = include_bytes!(env!("SOULBOX_ENVD"));
const INIT: &[u8] = include_bytes!(env!("SOULBOX_INIT"));
const SUDO: &[u8] = include_bytes!(env!("SOULBOX_SUDO"));
const INTERPRETER: &[u8] = include_bytes!(env!("SOULBOX_INTERPRETER"));

/// What the interpreter's kernels consist of besides the program: path and content each.
pub const INTERPRETER_FILES: &[(&str, &[u8])] =
    include!(concat!(env!("OUT_DIR"), "/interpreter_files.rs"));

/// Where the guest programs are on disk.
#[derive(Debug, Clone)]
pub struct Programs {
    pub envd: PathBuf,
    pub init: PathBuf,
    pub sudo: PathBuf,
    /// Only copied into templates.
    pub interpreter: PathBuf,
}

/// Puts the programs into `<folder>/<hash>/`. Every sandbox executes the same files, so their
/// pages are in memory once. Older versions stay while sandboxes run them: their inode lives on.
pub fn install(folder: &Path) -> io::Result<Programs> {
    let mut hash = Sha256::new();
    for program in [ENVD, INIT, SUDO, INTERPRETER] {
        hash.update(program);
    }
    let version = hex::encode(&hash.finalize()[..8]);
    let home = folder.join(&version);
    let programs = Programs {
        envd: home.join("soulbox-envd"),
        init: home.join("soulbox-init"),
        sudo: home.join("soulbox-sudo"),
        interpreter: home.join("soulbox-interpreter"),
    };
    if !home.is_dir() {
        // A crash half-way leaves only the temporary folder, which the next start replaces.
        let unfinished = folder.join(format!("{version}.new"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        fs::create_dir_all(&unfinished)?;
        for (name, bytes) in [
            ("soulbox-envd", ENVD),
            ("soulbox-init", INIT),
            ("soulbox-sudo", SUDO),
            ("soulbox-interpreter", INTERPRETER),
        ] {
            let path = unfinished.join(name);
            fs::write(&path, bytes)?;
            fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        fs::rename(&unfinished, &home)?;
    }
    remove_other_versions(folder, &version)?;
    Ok(programs)
}

fn remove_other_versions(folder: &Path, keep: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != keep {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
