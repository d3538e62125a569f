//! The state folder of one sandbox: enough to adopt it, or to finish it off.
//!
//! | file | written | means |
//! |---|---|---|
//! | `spec.json` | before anything is made | somebody wants this sandbox |
//! | `unready.json` | with the spec, if a start command must run first | of no use yet: gone when the ready command has passed |
//! | `running.json` | when its first process exists | where to find it |
//! | `lease.json` | when the deadline moves | replaces the spec's deadline |
//! | `paused.json` | before it is paused | do not let it run; what a resume brings back |
//! | `warm.json` | when it waits for a user | of which build it is; gone when it is the user's |
//! | `log.json`, `envd-log.json` | now and then; at a pause | what happened to it: for people only |
//! | `ended.json` | before anything is torn down | finish the destruction; why, and of what |
//!
//! Files appear whole or not at all (rename), so a crash of the server leaves a state that can be
//! read. What an answer promises (`lease.json`, `paused.json` and all that a paused sandbox needs) is
//! on the disk as well before it is given. A create waits for no disk: after a power cut its files
//! may be empty or not there. Those are told apart from files that were never there, and from files
//! that cannot be read just now ([`Folder::load`]).

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use fs_err as fs;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use soulbox_durable as durable;
use soulbox_runtime::{End, Error, LogEntry, Paused, Result, Running, TRIAL_MARK};
use soulbox_types::{SandboxId, SandboxSpec, UnixMillis};

use crate::ends::{Ends, Writing, Written};

const SPEC: &str = "spec.json";
const PAUSED: &str = "paused.json";
const ENDED: &str = "ended.json";
const LOG: &str = "log.json";
const ENVD_LOG: &str = "envd-log.json";
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

/// What a folder is after a restart.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// No spec and no disk: nothing was made, or nothing is left.
    Nothing,
    Whole(Box<Found>),
    /// Something is not as it was written.
    Damaged(Box<Damaged>),
}

#[derive(Debug)]
pub(crate) struct Damaged {
    pub(crate) spec: Option<SandboxSpec>,
    pub(crate) running: Option<Running>,
    /// For people: which files, and what is wrong with them.
    pub(crate) reason: String,
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

    /// Of any name: a copy of one.
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
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
        let paused_before = self.is_paused();
        let written = self.sync_made().and_then(|()| self.write(PAUSED, paused));
        if written.is_err()
            && !paused_before
            && let Err(error) = self.remove_soon(PAUSED)
        {
            tracing::error!(%error, "a failed pause is on record: a restart would carry it out");
        }
        written
    }

    pub(crate) fn resumed(&self) -> Result<()> {
        durable::remove(&self.path.join(PAUSED)).map_err(failed)
    }

    pub(crate) fn is_paused(&self) -> bool {
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

    pub(crate) fn keep_log(&self, entries: &[LogEntry]) -> Result<()> {
        self.write_soon(LOG, &entries)
    }

    pub(crate) fn keep_envd_log(&self, entries: &[LogEntry]) -> Result<()> {
        self.write_soon(ENVD_LOG, &entries)
    }

    /// What the node noted, if it can be read.
    pub(crate) fn log(&self) -> Option<Vec<LogEntry>> {
        self.read(LOG).ok().flatten()
    }

    /// What envd said before the last pause, as far as it can be read.
    pub(crate) fn envd_log(&self) -> Vec<LogEntry> {
        self.read(ENVD_LOG).ok().flatten().unwrap_or_default()
    }

    pub(crate) fn handed_over(&self) -> Result<()> {
        self.remove_soon("warm.json")
    }

    /// What the writable disk takes of the host's; 0 when it is gone.
    pub(crate) fn disk_bytes(&self) -> u64 {
        bytes_on_disk(&self.disk())
    }

    /// Whether the writable disk is there, from which the sandbox can be started anew. Whoever
    /// cannot look does not know.
    pub(crate) fn has_disk(&self) -> Result<bool> {
        match fs::metadata(self.disk()) {
            Ok(metadata) => Ok(metadata.is_file()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.path.join("disk.img")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// When the request for it was written.
    pub(crate) fn made_at(&self) -> Option<SystemTime> {
        let spec = fs::metadata(self.path.join(SPEC));
        spec.and_then(|metadata| metadata.modified()).ok()
    }

    /// For good if it is paused, because the pause is. Of others the row is on the disk a moment later.
    pub(crate) fn ended(&self, end: &End) -> Result<()> {
        if self.is_paused() {
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

    /// What it should be, if that can be read.
    pub(crate) fn spec(&self) -> Option<SandboxSpec> {
        let spec = self.part::<SandboxSpec>(SPEC, &mut Vec::new());
        spec.ok().flatten()
    }

    /// Reads only. On error something could not be read this time: that says nothing about what
    /// is there.
    pub(crate) fn load(&self) -> Result<Loaded> {
        let mut damage = Vec::new();
        let spec = self.part::<SandboxSpec>(SPEC, &mut damage)?;
        let named = self.path.file_name().and_then(|name| name.to_str());
        let mut spec = spec.filter(|spec| {
            let ours = named == Some(spec.id.as_str());
            if !ours {
                damage.push(format!("{SPEC} is of another sandbox"));
            }
            ours
        });
        let lease = self.part::<Lease>("lease.json", &mut damage)?;
        if let (Some(spec), Some(lease)) = (&mut spec, lease) {
            spec.deadline = lease.deadline;
        }
        let running = self.part("running.json", &mut damage)?;
        let paused = self.part("paused.json", &mut damage)?;
        let warm = self.part("warm.json", &mut damage)?;
        let ended = self.part::<Written>(ENDED, &mut damage)?;
        let end = ended.and_then(|written| written.end(spec.as_ref(), named));
        let unready = fs::exists(self.path.join("unready.json")).map_err(failed)?;
        // That it ended is all that counts, whatever else is left of it.
        let spec = match &end {
            Some(end) => Some(SandboxSpec::clone(&end.spec)),
            None => spec,
        };
        match spec {
            Some(spec) if damage.is_empty() || end.is_some() => {
                Ok(Loaded::Whole(Box::new(Found {
                    spec,
                    running,
                    paused,
                    warm,
                    unready,
                    ended: end,
                })))
            }
            None if !self.has_disk()? || self.path.join(TRIAL_MARK).exists() => Ok(Loaded::Nothing),
            spec => {
                if damage.is_empty() {
                    damage.push(format!("{SPEC} is missing"));
                }
                Ok(Loaded::Damaged(Box::new(Damaged {
                    spec,
                    running,
                    reason: damage.join(", "),
                })))
            }
        }
    }

    /// Makes a folder of which nothing runs that of a paused sandbox, if its spec can be read.
    /// What is not as it was written stays under another name, for whoever wants to look.
    pub(crate) fn mend(&self, paused: &Paused) -> Result<()> {
        for name in ["running.json", "warm.json", "unready.json", ENDED] {
            self.set_aside(name)?;
        }
        for name in ["lease.json", "paused.json"] {
            if matches!(
                self.read::<serde_json::Value>(name),
                Err(Error::Damaged { .. })
            ) {
                self.set_aside(name)?;
            }
        }
        self.paused(paused)?;
        match self.load()? {
            Loaded::Whole(_) => Ok(()),
            Loaded::Nothing => Err(failed(io::ErrorKind::NotFound.into())),
            Loaded::Damaged(damaged) => Err(Error::Damaged {
                what: "the state of a sandbox".to_owned(),
                message: damaged.reason,
            }),
        }
    }

    fn set_aside(&self, name: &str) -> Result<()> {
        let (old, new) = (self.path.join(name), format!("{name}.damaged"));
        match fs::rename(old, self.path.join(new)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
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
        let mut damage = Vec::new();
        let found = self.part(name, &mut damage)?;
        match damage.pop() {
            None => Ok(found),
            Some(message) => Err(Error::Damaged {
                what: "the state of a sandbox".to_owned(),
                message,
            }),
        }
    }

    /// `None` also for one that is not what was written: then `damage` has a word more.
    fn part<T: DeserializeOwned>(&self, name: &str, damage: &mut Vec<String>) -> Result<Option<T>> {
        let text = match fs::read(self.path.join(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        match serde_json::from_slice(&text) {
            Ok(value) => return Ok(Some(value)),
            // What a power cut leaves of files that were just written.
            Err(_) if text.is_empty() => damage.push(format!("{name} is empty")),
            Err(error) => damage.push(format!("{name} is damaged ({error})")),
        }
        Ok(None)
    }
}

/// Every sandbox that has a folder.
pub(crate) fn list(parent: &Path) -> Result<Vec<SandboxId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(parent).map_err(unread)? {
        let entry = entry.map_err(unread)?;
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

fn unread(source: io::Error) -> Error {
    Error::io("could not read the sandbox's state", source)
}
/// What a sparse file really takes; nothing when it is not there.
pub(crate) fn bytes_on_disk(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.blocks() * 512)
}
