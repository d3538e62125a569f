//! Ends that nobody may have on record yet: a file each, from when the sandbox's folder goes until
//! the control plane has written down why. Without it, a server that dies in between would leave
//! its successor with a sandbox that is simply not there.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use fs_err as fs;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use soulbox_durable as durable;
use soulbox_runtime::{End, Error, Result};
use soulbox_types::{EndReason, SandboxId, SandboxSpec, UnixMillis};

#[derive(Debug, Clone)]
pub(crate) struct Ends {
    path: PathBuf,
    /// For which there was no room on the disk.
    unwritten: Arc<Mutex<HashMap<SandboxId, End>>>,
}

/// An end as a file tells it: `ended.json` of a folder, and the same file here afterwards.
#[derive(Debug, Deserialize)]
pub(crate) struct Written {
    reason: EndReason,
    // Older servers wrote only the reason.
    #[serde(default)]
    detail: String,
    #[serde(default)]
    at: Option<UnixMillis>,
    #[serde(default)]
    spec: Option<SandboxSpec>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Writing<'a> {
    reason: EndReason,
    detail: &'a str,
    at: UnixMillis,
    spec: &'a SandboxSpec,
}

impl<'a> From<&'a End> for Writing<'a> {
    fn from(end: &'a End) -> Self {
        Self {
            reason: end.reason,
            detail: &end.detail,
            at: end.at,
            spec: &end.spec,
        }
    }
}

impl Written {
    /// Of the sandbox with this spec.
    pub(crate) fn of(self, spec: &SandboxSpec) -> End {
        End {
            spec: Arc::new(spec.clone()),
            reason: self.reason,
            detail: self.detail,
            at: self.at.unwrap_or_else(UnixMillis::now),
        }
    }
}

impl Ends {
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        durable::make_folder(&path, 0o700)
            .map_err(|e| Error::io("could not make the ends folder", e))?;
        Ok(Self {
            path,
            unwritten: Arc::default(),
        })
    }

    /// Takes the file over from a folder that goes. Without one the end is kept in memory until
    /// there is room for it.
    pub(crate) fn take_over(&self, end: &End, ended: &Path) {
        let id = &end.spec.id;
        if let Err(error) = fs::rename(ended, self.file(id)) {
            tracing::warn!(sandbox = %id, %error, "why it ended is kept in memory for now");
            self.unwritten.lock().insert(id.clone(), end.clone());
        }
    }

    /// Why it ended, if its folder has given that up already.
    pub(crate) fn of(&self, id: &SandboxId) -> Option<End> {
        read(&self.file(id)).ok()
    }

    pub(crate) fn forget(&self, id: &SandboxId) -> io::Result<()> {
        let mut unwritten = self.unwritten.lock();
        unwritten.remove(id);
        match fs::remove_file(self.file(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What cannot be read is dropped: it would not be readable at the next start either.
    pub(crate) fn list(&self) -> Result<Vec<End>> {
        let failed = |e| Error::io("could not list the ends that are not on record", e);
        self.write_unwritten();
        let mut ends: Vec<End> = self.unwritten.lock().values().cloned().collect();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read(&path) {
                Ok(end) => ends.push(end),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the record of an end cannot be read");
                    fs::remove_file(&path).map_err(failed)?;
                }
            }
        }
        Ok(ends)
    }

    pub(crate) fn write_unwritten(&self) {
        let mut unwritten = self.unwritten.lock();
        unwritten.retain(|id, end| match write(&self.file(id), end) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "why it ended is still only in memory");
                true
            }
        });
    }

    fn file(&self, id: &SandboxId) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }
}

fn write(path: &Path, end: &End) -> io::Result<()> {
    // Tokens are in here.
    durable::write_soon(path, 0o600, &serde_json::to_vec(&Writing::from(end))?)
}

fn read(path: &Path) -> io::Result<End> {
    let mut written: Written = serde_json::from_slice(&fs::read(path)?)?;
    let spec = written.spec.take();
    let spec = spec.ok_or_else(|| io::Error::other("it does not tell of which sandbox"))?;
    Ok(written.of(&spec))
}
