//! Sandboxes that are there and cannot be used. Nothing with a disk is removed because it could not
//! be read.
//!
//! | what was found | its processes | its folder | until |
//! |---|---|---|---|
//! | a file is not what was written, or is missing | ended, the disk unmounted | moved to `quarantine/<id>/`, with `reason.json` | it is recovered or discarded |
//! | a file could not be read, or the sandbox not be taken up, this time | left alone | stays in its place | another look finds it whole: one a minute, a recovery, the next start |
//!
//! The folder moves as a whole by a rename, so a crash leaves it in one of the two places.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use fs_err as fs;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use soulbox_runtime::{Broken, DiskStream, Error, LogLevel, Paused, Remedy, Result, SandboxStatus};
use soulbox_types::{
    PauseMode, Purpose, SandboxId, SandboxSpec, SandboxState, TemplateId, UnixMillis,
};

use crate::{
    LocalNode,
    admission::Allocation,
    adopt, broken_disk,
    entry::Entry,
    folder::{Folder, Loaded},
    local::blocking,
};

const REASON: &str = "reason.json";
/// What is left of one that is being removed.
const GONE: &str = "gone";

#[derive(Debug)]
pub(crate) struct Quarantine {
    path: PathBuf,
    broken: Mutex<BTreeMap<SandboxId, Broken>>,
    /// One recovery or removal at a time: they are rare, and two of one sandbox must not meet.
    lock: tokio::sync::Mutex<()>,
}

/// Beside the files of one that was put aside.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    reason: String,
    at: UnixMillis,
    #[serde(default)]
    unsure: bool,
}

/// Why a sandbox is not used.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) spec: Option<SandboxSpec>,
    pub(crate) reason: String,
    /// It may be that nobody was ever told of it.
    pub(crate) unsure: bool,
}

impl Quarantine {
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        fs::create_dir_all(&path).map_err(failed)?;
        let mut broken = BTreeMap::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let place = entry.map_err(failed)?.path();
            if place.extension().is_some_and(|e| e == GONE) {
                fs::remove_dir_all(&place).map_err(failed)?;
                continue;
            }
            let name = place.file_name().and_then(|name| name.to_str());
            let Some(Ok(id)) = name.map(str::parse::<SandboxId>) else {
                tracing::warn!(path = %place.display(), "not a sandbox's folder; left alone");
                continue;
            };
            let found = look_at(&Folder::new(&path, &id), &id);
            tracing::error!(sandbox_id = %id, reason = found.reason, "a broken sandbox is kept in quarantine");
            broken.insert(id, found);
        }
        Ok(Self {
            path,
            broken: Mutex::new(broken),
            lock: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn list(&self) -> Vec<Broken> {
        self.broken.lock().values().cloned().collect()
    }

    /// Those whose folders are in their old places.
    pub(crate) fn left_alone(&self) -> Vec<SandboxId> {
        let broken = self.broken.lock();
        let left = broken.values().filter(|b| b.remedy == Remedy::Retry);
        left.map(|b| b.id.clone()).collect()
    }

    fn is_left_alone(&self, id: &SandboxId) -> bool {
        self.left_alone().contains(id)
    }

    /// What they take of the machine's disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.broken.lock().values().map(|b| b.disk_bytes).sum()
    }

    /// One of which is not known what it stands on.
    pub(crate) fn holds_unknown(&self) -> bool {
        self.broken.lock().values().any(|b| b.spec.is_none())
    }

    /// One that stands on this snapshot.
    pub(crate) fn stands_on(&self, is: impl Fn(&SandboxSpec) -> bool) -> Option<SandboxId> {
        let broken = self.broken.lock();
        let found = broken.values().find(|b| b.spec.as_deref().is_some_and(&is));
        found.map(|b| b.id.clone())
    }

    /// Stays where it is, and as it is.
    pub(crate) fn leave(&self, id: &SandboxId, folder: &Folder, fault: Fault) {
        let disk_bytes = folder.disk_bytes();
        let mut all = self.broken.lock();
        let before = all.get(id).filter(|before| before.remedy == Remedy::Retry);
        // It is looked at again and again.
        if before.is_none_or(|before| before.reason != fault.reason) {
            tracing::error!(
                sandbox_id = %id, reason = fault.reason,
                "the sandbox cannot be taken up; it is left as it is and tried again"
            );
        }
        let broken = Broken {
            id: id.clone(),
            // What could be read once is true.
            spec: match (fault.spec, before) {
                (Some(spec), _) => Some(Arc::new(spec)),
                (None, Some(before)) => before.spec.clone(),
                (None, None) => None,
            },
            reason: fault.reason,
            at: before.map_or_else(UnixMillis::now, |before| before.at),
            disk_bytes,
            remedy: Remedy::Retry,
            unsure: fault.unsure,
        };
        all.insert(id.clone(), broken);
    }

    /// Takes over the folder of one of which nothing runs. On error it is where it was. Blocking.
    pub(crate) fn put(&self, id: &SandboxId, folder: &Folder, fault: &Fault) -> Result<()> {
        let note = Note {
            reason: fault.reason.clone(),
            at: UnixMillis::now(),
            unsure: fault.unsure,
        };
        // A full disk must not keep it from being put aside: then only the log says why.
        if let Err(error) = write(&folder.path().join(REASON), &note) {
            tracing::warn!(sandbox_id = %id, %error, "why it is in quarantine could not be written");
        }
        fs::rename(folder.path(), self.path.join(id.as_str())).map_err(failed)?;
        sync_folder(&self.path);
        folder.path().parent().map(sync_folder);
        let broken = Broken {
            reason: note.reason,
            at: note.at,
            ..look_at(&Folder::new(&self.path, id), id)
        };
        tracing::error!(
            sandbox_id = %id, reason = broken.reason,
            "the sandbox cannot be used; its files are kept: `soulbox ls --broken`, `soulbox recover {id}`"
        );
        self.broken.lock().insert(id.clone(), broken);
        Ok(())
    }

    fn get(&self, id: &SandboxId) -> Result<Broken> {
        let found = self.broken.lock().get(id).cloned();
        found.ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    /// One that is in the quarantine, and so does not run.
    fn while_paused(&self, id: &SandboxId) -> Result<Folder> {
        let broken = self.get(id)?;
        if broken.remedy == Remedy::Retry {
            return Err(Error::InUse {
                what: format!("sandbox {id}"),
                users: format!(
                    "its own processes, as far as is known ({}): recover it first",
                    broken.reason
                ),
            });
        }
        Ok(Folder::new(&self.path, id))
    }

    fn forget(&self, id: &SandboxId) {
        self.broken.lock().remove(id);
    }
}

/// One in the quarantine, as its files tell it.
fn look_at(folder: &Folder, id: &SandboxId) -> Broken {
    let written = fs::read(folder.path().join(REASON))
        .and_then(|text| serde_json::from_slice::<Note>(&text).map_err(io::Error::other));
    let note = written.unwrap_or_else(|error| Note {
        reason: format!("why is not known any more: {error}"),
        at: UnixMillis::now(),
        unsure: false,
    });
    let spec = match folder.load() {
        Ok(Loaded::Whole(found)) => Some(found.spec),
        Ok(Loaded::Damaged(damaged)) => damaged.spec,
        Ok(Loaded::Nothing) | Err(_) => None,
    };
    // What waited for a user has no owner of its own.
    let spec = spec.filter(|spec| spec.purpose == Purpose::User);
    let has_disk = folder.has_disk().unwrap_or(false);
    Broken {
        id: id.clone(),
        remedy: if spec.is_some() && has_disk {
            Remedy::Repair
        } else {
            Remedy::Export
        },
        spec: spec.map(Arc::new),
        reason: note.reason,
        at: note.at,
        disk_bytes: folder.disk_bytes(),
        unsure: note.unsure,
    }
}

impl LocalNode {
    pub(crate) async fn look_again_in_task(
        self: Arc<Self>,
        id: SandboxId,
    ) -> Result<Option<SandboxStatus>> {
        let _ours = self.quarantine().lock.lock().await;
        self.look_again_locked(&id).await
    }

    /// Of one that was left alone; nothing happens to others.
    async fn look_again_locked(self: &Arc<Self>, id: &SandboxId) -> Result<Option<SandboxStatus>> {
        if !self.quarantine().is_left_alone(id) {
            return Ok(None);
        }
        adopt::try_again(self, id).await?;
        let adopted = self.entries().lock().get(id).map(Entry::status);
        let over = !self.folder(id).path().exists() && self.quarantine().is_left_alone(id);
        if adopted.is_some() || over {
            self.quarantine().forget(id);
        }
        Ok(adopted)
    }

    pub(crate) async fn recover_in_task(self: Arc<Self>, id: SandboxId) -> Result<SandboxStatus> {
        let _ours = self.quarantine().lock.lock().await;
        self.quarantine().get(&id)?;
        if let Some(status) = self.look_again_locked(&id).await? {
            return Ok(status);
        }
        // It is there now, if it can be repaired at all.
        let broken = self.quarantine().get(&id)?;
        let Some(spec) = broken.spec.filter(|_| broken.remedy == Remedy::Repair) else {
            return Err(Error::Damaged {
                what: format!("sandbox {id}"),
                message: match broken.remedy {
                    Remedy::Retry => format!("{} (it was left as it is)", broken.reason),
                    _ => format!(
                        "{}: what it was made of is not known, only its disk can be exported",
                        broken.reason
                    ),
                },
            });
        };
        let (node, old) = (Arc::clone(&self), Folder::new(&self.quarantine().path, &id));
        let new = self.folder(&id);
        let paused = Paused {
            kept: PauseMode::Filesystem,
            at: UnixMillis::now(),
        };
        let place = new.clone();
        blocking(move || {
            old.mend(&paused)?;
            fs::rename(old.path(), place.path()).map_err(failed)?;
            sync_folder(&node.quarantine().path);
            sync_folder(node.sandboxes_dir());
            if let Err(error) = fs::remove_file(place.path().join(REASON)) {
                tracing::debug!(%error, "the reason of a former quarantine stays");
            }
            Ok(())
        })
        .await?;
        let mut entry = Entry::new(spec, SandboxState::Paused, new);
        entry.recall_notes();
        entry.paused = Some(paused);
        entry.allocation = Allocation::while_paused(PauseMode::Filesystem);
        entry.note(LogLevel::Warn, format!("recovered: {}", broken.reason));
        let status = entry.status();
        self.insert_paused(entry);
        self.quarantine().forget(&id);
        tracing::info!(sandbox_id = %id, "the sandbox was recovered from its files");
        Ok(status)
    }

    pub(crate) async fn read_broken_disk(self: Arc<Self>, id: SandboxId) -> Result<DiskStream> {
        let _ours = self.quarantine().lock.lock().await;
        let folder = self.quarantine().while_paused(&id)?;
        blocking(move || broken_disk::open(&folder.disk())).await
    }

    pub(crate) async fn discard_in_task(self: Arc<Self>, id: SandboxId) -> Result<()> {
        let _ours = self.quarantine().lock.lock().await;
        let folder = self.quarantine().while_paused(&id)?;
        let going = folder.path().with_extension(GONE);
        let gone = blocking(move || {
            fs::rename(folder.path(), &going).map_err(failed)?;
            fs::remove_dir_all(&going).map_err(failed)
        });
        gone.await?;
        self.quarantine().forget(&id);
        tracing::warn!(sandbox_id = %id, "a broken sandbox was removed");
        Ok(())
    }

    /// A broken sandbox that stands on a snapshot, so that it can be recovered some day.
    pub(crate) fn broken_on(&self, snapshot: &TemplateId) -> Option<SandboxId> {
        self.quarantine().stands_on(|spec| {
            let parents = self.parents(spec).unwrap_or_default();
            parents.contains(snapshot) || spec.snapshot.as_ref() == Some(snapshot)
        })
    }
}

fn write(path: &Path, note: &Note) -> io::Result<()> {
    fs::write(path, serde_json::to_vec_pretty(note)?)?;
    fs::File::open(path)?.sync_all()
}

/// A rename that a power cut takes back only moves the folder to its former place.
fn sync_folder(path: &Path) {
    if let Err(error) = fs::File::open(path).and_then(|folder| folder.sync_all()) {
        tracing::debug!(%error, "a folder is not synced");
    }
}

fn failed(source: io::Error) -> Error {
    Error::io("could not keep the broken sandbox", source)
}
