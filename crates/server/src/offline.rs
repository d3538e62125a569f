//! What is done to a data folder while no server runs on it: ending everything that it has on the
//! machine, and keeping a copy of its database before another program changes it.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use fs_err as fs;
use rustix::mount::{UnmountFlags, unmount};
use soulbox_machine::{Instance, Machine};

use crate::{
    LogFormat, data_dir::DataDir, keys::DATABASE, logging, preflight::has_sandboxes, trial,
};

/// Of a database that no program has open: with `-wal`, what a killed server wrote last.
const DATABASE_PARTS: [&str; 2] = ["soulbox.db", "soulbox.db-wal"];
/// Made anew by whoever opens the database.
const SHARED_MEMORY: &str = "soulbox.db-shm";
/// What a server writes at its first start and only a server does.
const MARKS: [&str; 3] = ["instance.json", "lock", "sandboxes"];
/// What sandboxes are: their state, and how they ended.
const OF_SANDBOXES: [&str; 3] = ["sandboxes", "quarantine", "ends"];

/// A data folder that no server uses, and none can while this is held.
#[derive(Debug)]
pub struct OfflineFolder {
    path: PathBuf,
    _lock: DataDir,
}

impl OfflineFolder {
    /// `None` when there is none. One of something else is refused.
    pub fn open(path: &Path) -> anyhow::Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        if let Some(absent) = MARKS.iter().find(|mark| !path.join(mark).exists()) {
            bail!(
                "{} is not the data folder of a soulbox server: it has no {absent}",
                path.display()
            );
        }
        Ok(Some(Self {
            path: path.to_owned(),
            _lock: DataDir::open(path)?,
        }))
    }

    /// Ends every sandbox, of all tenants, paused ones too, and takes away what they and the server
    /// have on this machine. Templates, snapshots, volumes, keys and certificates stay.
    pub async fn end_sandboxes(&self) -> anyhow::Result<()> {
        logging::init("warn", LogFormat::Text)?;
        let file = self.path.join("instance.json");
        let text = fs::read(&file)?;
        let instance: Instance = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged", file.display()))?;
        Machine::remove_traces(&instance).await;
        trial::clear_up(&self.path).await;
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || {
            unmount_below(&path)?;
            for folder in OF_SANDBOXES {
                empty(&path.join(folder))?;
            }
            Ok(())
        })
        .await?
    }

    /// Copies the database, for a program that cannot read what a newer one makes of it.
    pub fn keep_database(&self, copy: &Path) -> io::Result<()> {
        soulbox_durable::make_folder(copy, 0o700)?;
        for part in DATABASE_PARTS {
            let (from, to) = (self.path.join(part), copy.join(part));
            if from.exists() {
                let unfinished = copy.join(format!("{part}.new"));
                fs::copy(&from, &unfinished)?;
                soulbox_durable::sync_file(&unfinished)?;
                soulbox_durable::rename(&unfinished, &to)?;
            } else {
                soulbox_durable::remove(&to)?;
            }
        }
        Ok(())
    }

    /// Puts such a copy back: what was recorded since is forgotten.
    pub fn restore_database(&self, copy: &Path) -> anyhow::Result<()> {
        if !copy.join(DATABASE).is_file() {
            bail!("{} has no copy of a database", copy.display());
        }
        soulbox_durable::remove(&self.path.join(SHARED_MEMORY))?;
        // The log first: without it a database is an older one, with another one's it is damaged.
        soulbox_durable::remove(&self.path.join("soulbox.db-wal"))?;
        for part in DATABASE_PARTS {
            let from = copy.join(part);
            if from.exists() {
                let unfinished = self.path.join(format!("{part}.new"));
                fs::copy(&from, &unfinished)?;
                soulbox_durable::sync_file(&unfinished)?;
                soulbox_durable::rename(&unfinished, &self.path.join(part))?;
            }
        }
        Ok(())
    }

    /// Removes the folder with everything in it, once its sandboxes have ended.
    pub fn remove(self) -> anyhow::Result<()> {
        if has_sandboxes(&self.path) {
            bail!("{} still has sandboxes", self.path.display());
        }
        unmount_below(&self.path)?;
        fs::remove_dir_all(&self.path)?;
        Ok(())
    }
}

/// Whether a data folder has sandboxes: running, paused, or such as can only be recovered.
pub fn keeps_sandboxes(data_dir: &Path) -> bool {
    has_sandboxes(data_dir)
}

/// Mounts of volumes, which a killed server leaves.
fn unmount_below(folder: &Path) -> io::Result<()> {
    let folder = folder.canonicalize()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mut points: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescaped)
        .filter(|point| point.starts_with(&folder) && *point != folder)
        .collect();
    // Inner ones come after those that they are in.
    points.reverse();
    for point in points {
        unmount(&point, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// The kernel writes blanks and backslashes as octal numbers.
fn unescaped(field: &str) -> PathBuf {
    let mut path = field.to_owned();
    for (octal, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        path = path.replace(octal, character);
    }
    path.into()
}

fn empty(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    soulbox_durable::sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        drop(DataDir::open(&data).unwrap());
        fs::write(
            data.join("instance.json"),
            r#"{"tag":"0000","range":"10.0.0.0/16"}"#,
        )
        .unwrap();
        (dir, data)
    }

    #[test]
    fn a_folder_of_something_else_is_refused_and_none_is_nothing_to_do() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            OfflineFolder::open(&dir.path().join("absent"))
                .unwrap()
                .is_none()
        );
        fs::write(dir.path().join("lock"), "").unwrap();
        let refused = OfflineFolder::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("is not the data folder"), "{refused}");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "it is as it was"
        );
    }

    #[test]
    fn a_folder_that_a_server_uses_is_not_touched() {
        let (_dir, data) = folder();
        let _server = DataDir::open(&data).unwrap();
        let refused = OfflineFolder::open(&data).unwrap_err().to_string();
        assert!(refused.contains("another soulbox server uses"), "{refused}");
    }

    #[test]
    fn a_database_comes_back_as_it_was_with_its_log_and_without_a_later_one() {
        let (_dir, data) = folder();
        let copy = data.join("before-upgrade");
        let offline = OfflineFolder::open(&data).unwrap().unwrap();
        fs::write(data.join("soulbox.db"), "older").unwrap();
        offline.keep_database(&copy).unwrap();

        fs::write(data.join("soulbox.db"), "newer").unwrap();
        for later in ["soulbox.db-wal", SHARED_MEMORY] {
            fs::write(data.join(later), "of the newer one").unwrap();
        }
        offline.restore_database(&copy).unwrap();
        assert_eq!(
            fs::read_to_string(data.join("soulbox.db")).unwrap(),
            "older"
        );
        for later in ["soulbox.db-wal", SHARED_MEMORY] {
            assert!(!data.join(later).exists(), "{later}");
        }

        fs::write(data.join("soulbox.db-wal"), "not yet in it").unwrap();
        offline.keep_database(&copy).unwrap();
        fs::remove_file(data.join("soulbox.db-wal")).unwrap();
        offline.restore_database(&copy).unwrap();
        let log = fs::read_to_string(data.join("soulbox.db-wal")).unwrap();
        assert_eq!(log, "not yet in it");
    }

    #[test]
    fn nothing_is_restored_from_where_nothing_was_kept() {
        let (_dir, data) = folder();
        let offline = OfflineFolder::open(&data).unwrap().unwrap();
        fs::write(data.join("soulbox.db"), "the only one").unwrap();
        assert!(offline.restore_database(&data.join("absent")).is_err());
        assert_eq!(
            fs::read_to_string(data.join("soulbox.db")).unwrap(),
            "the only one"
        );
    }

    #[test]
    fn a_folder_with_sandboxes_is_not_removed() {
        let (_dir, data) = folder();
        let sandbox = data.join("sandboxes/i1");
        fs::create_dir(&sandbox).unwrap();
        fs::write(sandbox.join("spec.json"), "{}").unwrap();
        let offline = OfflineFolder::open(&data).unwrap().unwrap();
        assert!(offline.remove().is_err());
        assert!(sandbox.exists());
        empty(&data.join("sandboxes")).unwrap();
        OfflineFolder::open(&data)
            .unwrap()
            .unwrap()
            .remove()
            .unwrap();
        assert!(!data.exists());
    }

    #[test]
    fn names_of_mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            unescaped(r"/srv/my\040data\134x"),
            Path::new(r"/srv/my data\x")
        );
    }
}
