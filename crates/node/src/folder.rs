//! The state folder of one sandbox: enough to adopt it, or to finish it off.
//!
//! | file | written | means |
//! |---|---|---|
//! | `spec.json` | before anything is made | somebody wants this sandbox |
//! | `unready.json` | with the spec, if a start command must run first | of no use yet: gone when the ready command has passed |
//! | `running.json` | when its first process exists | where to find it |
//! | `lease.json` | when the deadline moves | replaces the spec's deadline |
//! | `paused.json` | before it rests | do not let it run; what a resume brings back |
//! | `warm.json` | when it waits for a user | of which build it is; gone when it is the user's |
//! | `ended.json` | before anything is torn down | finish the destruction; why, and of what |
//!
//! Files appear whole or not at all (rename), so a crash of the server leaves a state that can be
//! read. What an answer promises (`lease.json`, `paused.json` and all that a paused sandbox needs) is
//! on the disk as well before it is given. A create waits for no disk: after a power cut its files
//! may be empty or not there.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use fs_err as fs;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use soulbox_durable as durable;
use soulbox_runtime::{End, Error, Paused, Result, Running};
use soulbox_types::{SandboxId, SandboxSpec, UnixMillis};

use crate::ends::{Ends, Writing, Written};

const SPEC: &str = "spec.json";
const PAUSED: &str = "paused.json";
const ENDED: &str = "ended.json";
/// Tokens are in these files.
const MODE: u32 = 0o600;

#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Lease {
    deadline: UnixMillis,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Warm {
    pub(crate) build_id: String,
}

/// What a folder tells after a restart.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) spec: SandboxSpec,
    pub(crate) running: Option<Running>,
    pub(crate) paused: Option<Paused>,
    pub(crate) warm: Option<Warm>,
    /// Its start command has not done its work, and nobody was told of it.
    pub(crate) unready: bool,
    pub(crate) ended: Option<End>,
}

impl Folder {
    pub(crate) fn new(parent: &Path, id: &SandboxId) -> Self {
        Self {
            path: parent.join(id.as_str()),
        }
    }

    pub(crate) fn create(&self, spec: &SandboxSpec) -> Result<()> {
        fs::create_dir_all(&self.path).map_err(failed)?;
        self.write_soon(SPEC, spec)
    }

    /// What it should be has changed, and somebody is told so.
    pub(crate) fn change(&self, spec: &SandboxSpec) -> Result<()> {
        self.write(SPEC, spec)
    }

    /// Before its first process exists: a crash in between must not make it look whole.
    pub(crate) fn unready(&self) -> Result<()> {
        self.write_soon("unready.json", &serde_json::Value::Null)
    }

    pub(crate) fn ready(&self) -> Result<()> {
        self.remove_soon("unready.json")
    }

    pub(crate) fn started(&self, running: &Running) -> Result<()> {
        self.write_soon("running.json", running)
    }

    pub(crate) fn lease(&self, deadline: UnixMillis) -> Result<()> {
        self.write("lease.json", &Lease { deadline })
    }

    /// With all that finds it again after a power cut: a create did not wait for the disk.
    pub(crate) fn paused(&self, paused: &Paused) -> Result<()> {
        let rested = self.rests();
        let written = self.sync_made().and_then(|()| self.write(PAUSED, paused));
        if written.is_err()
            && !rested
            && let Err(error) = self.remove_soon(PAUSED)
        {
            tracing::error!(%error, "a failed pause is on record: a restart would carry it out");
        }
        written
    }

    pub(crate) fn resumed(&self) -> Result<()> {
        durable::remove(&self.path.join(PAUSED)).map_err(failed)
    }

    fn rests(&self) -> bool {
        self.path.join(PAUSED).exists()
    }

    /// Its own folder is left to whoever writes into it next.
    fn sync_made(&self) -> Result<()> {
        for name in [SPEC, "running.json", "lease.json"] {
            durable::sync_file_if_there(&self.path.join(name)).map_err(failed)?;
        }
        let above = self.path.parent().unwrap_or(&self.path);
        durable::sync_folder(above).map_err(failed)
    }

    pub(crate) fn warm(&self, warm: &Warm) -> Result<()> {
        self.write_soon("warm.json", warm)
    }

    pub(crate) fn handed_over(&self) -> Result<()> {
        self.remove_soon("warm.json")
    }

    /// What the writable disk takes of the host's; 0 when it is gone.
    pub(crate) fn disk_bytes(&self) -> u64 {
        fs::metadata(self.path.join("disk.img")).map_or(0, |m| m.blocks() * 512)
    }

    /// Whether the writable disk is there, from which the sandbox can be started anew.
    pub(crate) fn has_disk(&self) -> bool {
        self.path.join("disk.img").is_file()
    }

    /// For good if it rests, because its rest is. Of others the row is on the disk a moment later.
    pub(crate) fn ended(&self, end: &End) -> Result<()> {
        if self.rests() {
            self.write(ENDED, &Writing::from(end))
        } else if self.path.exists() {
            self.write_soon(ENDED, &Writing::from(end))
        } else {
            Ok(())
        }
    }

    pub(crate) fn running(&self) -> Result<Option<Running>> {
        self.read("running.json")
    }

    /// `None` when there is no readable spec: nothing was made then, or it is gone.
    pub(crate) fn load(&self) -> Result<Option<Found>> {
        let Some(mut spec) = self.read::<SandboxSpec>("spec.json")? else {
            return Ok(None);
        };
        if let Some(lease) = self.read::<Lease>("lease.json")? {
            spec.deadline = lease.deadline;
        }
        let ended = self.read::<Written>(ENDED)?;
        let ended = ended.map(|written| written.of(&spec));
        Ok(Some(Found {
            spec,
            running: self.running()?,
            paused: self.read("paused.json")?,
            warm: self.read("warm.json")?,
            unready: self.path.join("unready.json").exists(),
            ended,
        }))
    }

    /// Everything but why it ended, which waits among `ends` to be recorded.
    pub(crate) fn remove_into(&self, ends: &Ends, end: &End) -> Result<()> {
        ends.take_over(end, &self.path.join(ENDED));
        self.remove()?;
        // The disk has room now, of which there may have been none.
        ends.write_unwritten();
        Ok(())
    }

    /// The disk first: what is cut short leaves no disk of which nobody knows whose it is.
    pub(crate) fn remove(&self) -> Result<()> {
        self.remove_soon("disk.img")?;
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn remove_soon(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        durable::write(&self.path.join(name), MODE, &text(value)?).map_err(failed)
    }

    fn write_soon<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        durable::write_soon(&self.path.join(name), MODE, &text(value)?).map_err(failed)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        match fs::read(self.path.join(name)) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| {
                Error::io(
                    format!("{name} of a sandbox is damaged"),
                    io::Error::other(e),
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Every sandbox that has a folder.
pub(crate) fn list(parent: &Path) -> Result<Vec<SandboxId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(parent).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(Ok(id)) = entry.file_name().to_str().map(str::parse) {
            ids.push(id);
        } else {
            tracing::warn!(path = %entry.path().display(), "not a sandbox's folder; left alone");
        }
    }
    Ok(ids)
}

fn text<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| failed(io::Error::other(e)))
}

fn failed(source: io::Error) -> Error {
    Error::io("could not keep the sandbox's state", source)
}
