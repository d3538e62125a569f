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

const DAMAGED: &str = "damaged";

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
    /// Of the sandbox with this name, whose spec may be known besides. `None`: it does not tell of
    /// which sandbox.
    pub(crate) fn end(mut self, known: Option<&SandboxSpec>, name: Option<&str>) -> Option<End> {
        let own = self.spec.take();
        let spec = known.cloned().or(own)?;
        (name == Some(spec.id.as_str())).then(|| self.of(spec))
    }

    fn of(self, spec: SandboxSpec) -> End {
        End {
            spec: Arc::new(spec),
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
            tracing::warn!(sandbox_id = %id, %error, "why it ended is kept in memory for now");
            self.unwritten.lock().insert(id.clone(), end.clone());
        }
    }

    /// Why it ended, if its folder has given that up already. [`Error::Damaged`] when that is not
    /// what was written; other errors say nothing about it.
    pub(crate) fn of(&self, id: &SandboxId) -> Result<Option<End>> {
        let path = self.file(id);
        match read(&path) {
            Ok(end) => Ok(end),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Error::Damaged {
                what: format!("the record of its end ({})", path.display()),
                message: error.to_string(),
            }),
            Err(error) => Err(Error::io("could not read the record of its end", error)),
        }
    }

    pub(crate) fn forget(&self, id: &SandboxId) -> io::Result<()> {
        let mut unwritten = self.unwritten.lock();
        unwritten.remove(id);
        match fs::remove_file(self.file(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What is not as it was written is set aside under another name, for whoever wants to look;
    /// what cannot be read just now stays.
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
                Ok(end) => ends.extend(end),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the record of an end cannot be read");
                    if error.kind() == io::ErrorKind::InvalidData {
                        fs::rename(&path, path.with_extension(DAMAGED)).map_err(failed)?;
                    }
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
                tracing::warn!(sandbox_id = %id, %error, "why it ended is still only in memory");
                true
            }
        });
    }

    fn file(&self, id: &SandboxId) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }
}

pub(crate) fn write(path: &Path, end: &End) -> io::Result<()> {
    // Tokens are in here.
    durable::write_soon(path, 0o600, &serde_json::to_vec(&Writing::from(end))?)
}

/// `InvalidData`: it is not what was written. `None`: there is none (any more).
fn read(path: &Path) -> io::Result<Option<End>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let written: Written = serde_json::from_slice(&text).map_err(|e| invalid(e.to_string()))?;
    let name = path.file_stem().and_then(|name| name.to_str());
    let end = written.end(None, name);
    let strange = || invalid("it does not tell of which sandbox".to_owned());
    end.map(Some).ok_or_else(strange)
}
