//! The guest programs, built statically and carried inside the server.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use fs_err as fs;
use sha2::{Digest, Sha256};
use soulbox_durable as durable;

const ENVD: &[u8] = include_bytes!(env!("SOULBOX_ENVD"));
const INIT: &[u8] = include_bytes!(env!("SOULBOX_INIT"));
const SUDO: &[u8] = include_bytes!(env!("SOULBOX_SUDO"));
const INTERPRETER: &[u8] = include_bytes!(env!("SOULBOX_INTERPRETER"));

const PROGRAMS: [(&str, &[u8]); 4] = [
    ("soulbox-envd", ENVD),
    ("soulbox-init", INIT),
    ("soulbox-sudo", SUDO),
    ("soulbox-interpreter", INTERPRETER),
];

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
    for (_, bytes) in PROGRAMS {
        hash.update(bytes);
    }
    let version = hex::encode(&hash.finalize()[..8]);
    let home = folder.join(&version);
    let programs = Programs {
        envd: home.join("soulbox-envd"),
        init: home.join("soulbox-init"),
        sudo: home.join("soulbox-sudo"),
        interpreter: home.join("soulbox-interpreter"),
    };
    if !is_whole(&home)? {
        // A crash half-way leaves only the temporary folder, which the next start replaces.
        let unfinished = folder.join(format!("{version}.new"));
        remove_if_there(&unfinished)?;
        durable::make_folder(&unfinished, 0o755)?;
        for (name, bytes) in PROGRAMS {
            durable::write(&unfinished.join(name), 0o755, bytes)?;
        }
        // Of a version whose folder was trusted before its files were on the disk, after a power cut.
        remove_if_there(&home)?;
        durable::rename(&unfinished, &home)?;
    }
    remove_other_versions(folder, &version)?;
    Ok(programs)
}

/// Every sandbox runs these files: whether they are what they should be is looked at, not believed.
fn is_whole(home: &Path) -> io::Result<bool> {
    for (name, bytes) in PROGRAMS {
        let path = home.join(name);
        let (content, metadata) = match (fs::read(&path), fs::metadata(&path)) {
            (Ok(content), Ok(metadata)) => (content, metadata),
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(false);
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        if content != bytes || metadata.permissions().mode() & 0o777 != 0o755 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_a_power_cut_left_empty_are_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let programs = install(folder.path()).unwrap();
        assert_eq!(fs::read(&programs.envd).unwrap(), ENVD);
        fs::write(&programs.envd, "").unwrap();
        install(folder.path()).unwrap();
        assert_eq!(fs::read(&programs.envd).unwrap(), ENVD);
        fs::remove_file(&programs.init).unwrap();
        install(folder.path()).unwrap();
        assert_eq!(fs::read(&programs.init).unwrap(), INIT);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn whole_programs_stay_the_same_files() {
        use std::os::unix::fs::MetadataExt;

        let folder = tempfile::tempdir().unwrap();
        let inode = || {
            let programs = install(folder.path()).unwrap();
            fs::metadata(&programs.envd).unwrap().ino()
        };
        assert_eq!(inode(), inode());
    }
}
