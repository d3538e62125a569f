//! Ends that nobody may have on record yet: a file each, from when the sandbox's folder goes until
//! the control plane has written down why. Without it, a server that dies in between would leave
//! its successor with a sandbox that is simply not there.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use soulbox_runtime::{End, Error, Result};
use soulbox_types::{EndReason, SandboxId, SandboxSpec, UnixMillis};

#[derive(Debug, Clone)]
pub(crate) struct Ends {
    path: PathBuf,
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
        fs::create_dir_all(&path).map_err(|e| Error::io("could not make the ends folder", e))?;
        Ok(Self { path })
    }

    /// Takes the file over from a folder that goes. Where there is none, nothing is known.
    pub(crate) fn take_over(&self, id: &SandboxId, ended: &Path) -> io::Result<()> {
        match fs::rename(ended, self.file(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Why it ended, if its folder has given that up already.
    pub(crate) fn of(&self, id: &SandboxId) -> Option<End> {
        read(&self.file(id)).ok()
    }

    pub(crate) fn forget(&self, id: &SandboxId) -> io::Result<()> {
        match fs::remove_file(self.file(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What cannot be read is dropped: it would not be readable at the next start either.
    pub(crate) fn list(&self) -> Result<Vec<End>> {
        let failed = |e| Error::io("could not list the ends that are not on record", e);
        let mut ends = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
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

    fn file(&self, id: &SandboxId) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }
}

fn read(path: &Path) -> io::Result<End> {
    let mut written: Written = serde_json::from_slice(&fs::read(path)?)?;
    let spec = written.spec.take();
    let spec = spec.ok_or_else(|| io::Error::other("it does not tell of which sandbox"))?;
    Ok(written.of(&spec))
}
