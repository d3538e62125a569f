//! The command line's side of backups.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use soulbox_backup::{Manifest, Progress, Watcher};
use tokio::runtime::Handle;

use super::{
    operator::{Message, request},
    stopped::StoppedSource,
    take::{host, take},
};

/// A backup that is whole.
#[derive(Debug)]
pub struct BackupDone {
    pub path: PathBuf,
    pub manifest: Manifest,
    /// This machine has another system than the one that it is of.
    pub other_host: bool,
}

/// Reads a whole backup, and says whether it is what was written. Blocking.
pub fn verify_backup(backup: &Path, watcher: &dyn Watcher) -> Result<BackupDone> {
    let path = soulbox_backup::find(backup)?;
    let manifest = Manifest::read(&path)?;
    soulbox_backup::verify(&path, &manifest, watcher)?;
    Ok(done(path, manifest))
}

fn done(path: PathBuf, manifest: Manifest) -> BackupDone {
    BackupDone {
        path,
        other_host: manifest.host != host(),
        manifest,
    }
}

/// Takes a backup of a data folder into `target`: through its server, or without one where none
/// runs. Blocking; in a runtime.
pub fn back_up(data_dir: &Path, target: &Path, watcher: &dyn Watcher) -> Result<BackupDone> {
    check_root()?;
    let data_dir = std::path::absolute(data_dir)?;
    if !data_dir.is_dir() {
        bail!(
            "there is no data folder {}: correct --data-dir",
            data_dir.display()
        );
    }
    soulbox_durable::make_folder(target, 0o700)
        .with_context(|| format!("could not make {}", target.display()))?;
    let inside = fs::canonicalize(target)?.starts_with(fs::canonicalize(&data_dir)?);
    if inside {
        bail!(
            "{} is inside the data folder: choose a folder elsewhere, best on another disk",
            target.display()
        );
    }
    let folder = fs::File::open(target)?;
    if let Some(stream) = request(&data_dir, folder.file()).context("could not ask the server")? {
        return follow(BufReader::new(stream), target, watcher);
    }
    let source = StoppedSource::open(&data_dir, Handle::current())?;
    let (path, manifest) = take(&source, target, watcher)?;
    Ok(done(path, manifest))
}

/// Makes a data folder from a backup (or from the newest in a folder of backups). Blocking.
pub fn restore(backup: &Path, data_dir: &Path, watcher: &dyn Watcher) -> Result<BackupDone> {
    check_root()?;
    let path = soulbox_backup::find(backup)?;
    let manifest = Manifest::read(&path)?;
    soulbox_backup::restore(&path, &manifest, data_dir, watcher)?;
    Ok(done(path, manifest))
}

fn follow(lines: impl BufRead, target: &Path, watcher: &dyn Watcher) -> Result<BackupDone> {
    for line in lines.lines() {
        let line = line.context("the server went away while it took the backup")?;
        let message = serde_json::from_str(&line).context("the server's answer makes no sense")?;
        match message {
            Message::Progress { done, total, what } => {
                let progress = Progress {
                    done,
                    total,
                    what: &what,
                };
                if !watcher.goes_on(progress) {
                    return Err(soulbox_backup::Error::Stopped.into());
                }
            }
            Message::Done { name, manifest } => {
                return Ok(done(target.join(name), *manifest));
            }
            Message::Failed { why } => bail!("{why}"),
        }
    }
    bail!("the server went away while it took the backup: there is none; take it again")
}

fn check_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("a backup holds everybody's files and keys: run this as root (sudo)")
}
