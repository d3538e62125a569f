//! The data folder: private, owned by one server at a time, with the seed of all tokens.

use std::{
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use soulbox_backup::UNFINISHED_RESTORE;
use soulbox_types::Secret;

use crate::private_file;

/// Locks the folder until it is dropped, or the process ends for whatever reason.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: fs::File,
}

/// A server that is killed between fork and exec of a program leaves its lock to that program until
/// the exec.
const LAST_CHILD: Duration = Duration::from_secs(2);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// Created here, so that they are not created with wider permissions later.
const FOLDERS: [&str; 11] = [
    "acme",
    "bin",
    "disks",
    "ends",
    "images",
    "layers",
    "quarantine",
    "sandboxes",
    "snapshots",
    "templates",
    "volumes",
];
const FILES: [&str; 9] = [
    "env",
    "env.tls",
    "instance.json",
    "last_backup.json",
    "lock",
    "seed",
    "soulbox.db",
    "soulbox.db-shm",
    "soulbox.db-wal",
];

impl DataDir {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        if path.exists() && !path.is_dir() {
            bail!(
                "{} is not a folder: choose another one with --data-dir",
                path.display()
            );
        }
        let unusable = || {
            let what_to_do = soulbox_doctor::Environment::detect(path).writable();
            format!(
                "the data folder {} cannot be used: {what_to_do}",
                path.display()
            )
        };
        make(path).with_context(unusable)?;
        set_mode(path, 0o700).with_context(unusable)?;
        let lock = lock(path, unusable)?;
        if path.join(UNFINISHED_RESTORE).exists() {
            bail!(
                "a restore into {} was cut short: empty it, and restore again",
                path.display()
            );
        }
        crate::backup::remove_left_pins(path)?;
        for name in FOLDERS {
            make(&path.join(name))?;
        }
        // Their contents are found through these names.
        soulbox_durable::sync_folder(path)?;
        if let Some(above) = path.canonicalize()?.parent() {
            soulbox_durable::sync_folder(above)?;
        }
        let dir = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        dir.close_all()?;
        Ok(dir)
    }

    /// Lets every user of this machine read `folder` in it: the certificates that clients have to
    /// trust. All the rest stays closed.
    pub(crate) fn share(&self, folder: &Path) -> io::Result<()> {
        self.close_all()?;
        set_mode(folder, 0o755)?;
        set_mode(&self.path, 0o711)
    }

    fn close_all(&self) -> io::Result<()> {
        let folders = FOLDERS.iter().map(|name| (name, 0o700));
        let files = FILES.iter().map(|name| (name, private_file::SECRET));
        for (name, mode) in folders.chain(files) {
            match set_mode(&self.path.join(name), mode) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The key from which tokens are derived, made at the first start. In hex.
    pub(crate) fn seed(&self) -> anyhow::Result<Secret> {
        let path = self.path.join("seed");
        if let Some(text) = private_file::read(&path)? {
            let text = text.trim();
            if text.len() < 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                bail!(
                    "{} is damaged. Restore it from a backup; or remove it, which makes a new one \
                     and invalidates the access tokens of running sandboxes",
                    path.display()
                );
            }
            return Ok(Secret::new(text));
        }
        let seed = Secret::random();
        private_file::write(
            &path,
            private_file::SECRET,
            format!("{}\n", seed.expose()).as_bytes(),
        )?;
        Ok(seed)
    }
}

/// Keeps servers from starting on the folder of one that does not run.
pub(crate) fn lock_of_stopped(path: &Path) -> anyhow::Result<fs::File> {
    lock(path, || format!("the data folder {} cannot be used", path.display()))
        .context("no server answers there, and the folder is in use: a server may be starting, or an older version runs")
}

/// Others may pass through what is above the folder.
fn make(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if !path.is_dir() => Err(error),
        _ => Ok(()),
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    if fs::metadata(path)?.permissions().mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

fn lock(dir: &Path, unusable: impl Fn() -> String) -> anyhow::Result<fs::File> {
    let path = dir.join("lock");
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(unusable)?;
    let until = Instant::now() + LAST_CHILD;
    let locked = loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            done => break done,
        }
    };
    match locked {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!(
            "another soulbox server uses {}. Stop it first, or give this one its own folder with \
             --data-dir (and its own ports with --listen, --https and --admin)",
            dir.display()
        ),
        Err(error) => Err(io::Error::from(error))
            .with_context(|| format!("could not lock {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_the_seed_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/data");
        let first = DataDir::open(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        let seed = first.seed().unwrap();
        assert_eq!(mode(&path.join("seed")), 0o600);
        drop(first);
        let second = DataDir::open(&path).unwrap();
        assert!(second.seed().unwrap().matches(seed.expose()));
    }

    #[test]
    fn only_a_shared_folder_is_open_to_other_users() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let dir = DataDir::open(&path).unwrap();
        dir.seed().unwrap();
        let certificates = path.join("tls");
        fs::create_dir(&certificates).unwrap();
        for name in FILES {
            fs::write(path.join(name), "made by others with their own rights").unwrap();
            set_mode(&path.join(name), 0o644).unwrap();
        }
        set_mode(&path.join("volumes"), 0o755).unwrap();
        dir.share(&certificates).unwrap();

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o711, "passed through, not listed");
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap().path();
            let shared = entry == certificates;
            assert_eq!(mode(&entry) & 0o077 != 0, shared, "{}", entry.display());
        }
    }

    #[test]
    fn a_second_server_on_the_same_folder_is_refused_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let _first = DataDir::open(dir.path()).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("another soulbox server") && error.contains("--data-dir"),
            "{error}"
        );
    }

    #[test]
    fn a_damaged_seed_is_not_replaced_in_silence() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("seed"), "oops").unwrap();
        let error = DataDir::open(dir.path())
            .unwrap()
            .seed()
            .unwrap_err()
            .to_string();
        assert!(error.contains("damaged"), "{error}");
    }
}
