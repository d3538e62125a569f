//! Snapshots: the files of a sandbox at one moment.
//!
//! Each has a folder with `disk.img` and `manifest.json`, which appears whole by a rename. A
//! sandbox made from one has the image as a read-only layer below a disk of its own, so making
//! it costs the same whatever the snapshot holds. An image is checked against its manifest before
//! its first use by this server; what does not match is not used.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use fs_err as fs;
use parking_lot::Mutex;
use soulbox_durable as durable;
use soulbox_runtime::{Error, Result, Snapshot};
use soulbox_sparse::checksum;
use soulbox_types::TemplateId;

use crate::adopt::{in_full, is_short_of_resources};

/// Overlayfs takes hundreds of layers, but each is a mount that every create pays for.
pub(crate) const DEEPEST: usize = 24;
const IMAGE: &str = "disk.img";
const MANIFEST: &str = "manifest.json";

#[derive(Debug)]
pub(crate) struct Snapshots {
    folder: PathBuf,
    known: Mutex<HashMap<TemplateId, Snapshot>>,
    /// Those that are there and cannot be used, with the reason.
    unreadable: HashMap<String, String>,
    /// Those whose image was found to be what the manifest says.
    verified: Mutex<HashSet<TemplateId>>,
}

impl Snapshots {
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        durable::make_folder(&folder, 0o700).map_err(failed)?;
        let (mut known, mut unreadable) = (HashMap::new(), HashMap::new());
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|e| e == "new" || e == "old") {
                // Cut short by a crash.
                fs::remove_dir_all(&path).map_err(failed)?;
                continue;
            }
            match read_manifest(&path) {
                Ok(snapshot) => {
                    known.insert(snapshot.id.clone(), snapshot);
                }
                Err(error) => {
                    let error = failed(error);
                    if is_short_of_resources(&error) {
                        return Err(error);
                    }
                    let reason = in_full(&error);
                    tracing::error!(path = %path.display(), reason, "a snapshot cannot be read; left alone");
                    let name = path.file_name().unwrap_or_default();
                    unreadable.insert(name.to_string_lossy().into_owned(), reason);
                }
            }
        }
        Ok(Self {
            folder,
            known: Mutex::new(known),
            unreadable,
            verified: Mutex::default(),
        })
    }

    /// One of which is not known what it stands on.
    pub(crate) fn holds_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    pub(crate) fn list(&self) -> Vec<Snapshot> {
        self.known.lock().values().cloned().collect()
    }

    pub(crate) fn get(&self, id: &TemplateId) -> Option<Snapshot> {
        self.known.lock().get(id).cloned()
    }

    /// Where the image of a new snapshot is to be written.
    pub(crate) fn begin(&self, id: &TemplateId) -> Result<PathBuf> {
        let folder = self.unfinished(id);
        fs::create_dir_all(&folder).map_err(failed)?;
        Ok(folder.join(IMAGE))
    }

    pub(crate) fn abandon(&self, id: &TemplateId) {
        if let Err(error) = fs::remove_dir_all(self.unfinished(id)) {
            tracing::warn!(snapshot = %id, %error, "could not remove an unfinished snapshot; the next start does");
        }
    }

    /// Puts the manifest beside the image, which is on the disk, and makes the snapshot known once
    /// that is all of it. Blocking.
    pub(crate) fn finish(&self, mut snapshot: Snapshot) -> Result<Snapshot> {
        let unfinished = self.unfinished(&snapshot.id);
        let sum = checksum(&unfinished.join(IMAGE)).map_err(failed)?;
        snapshot.bytes = sum.bytes;
        snapshot.checksum = sum.hex;
        let text =
            serde_json::to_vec_pretty(&snapshot).map_err(|e| failed(std::io::Error::other(e)))?;
        let place = self.place(&snapshot.id);
        let named = durable::write(&unfinished.join(MANIFEST), 0o600, &text)
            .and_then(|()| durable::rename(&unfinished, &place));
        if let Err(error) = named {
            // It may have its name and not be known to keep it: whoever asked is told that there is
            // none, and nobody else would ever remove it.
            if place.exists()
                && let Err(undo) = fs::rename(&place, &unfinished)
            {
                tracing::error!(snapshot = %snapshot.id, error = %undo, "a snapshot that was not taken is left");
            }
            return Err(failed(error));
        }
        self.known
            .lock()
            .insert(snapshot.id.clone(), snapshot.clone());
        self.verified.lock().insert(snapshot.id.clone());
        Ok(snapshot)
    }

    /// The images that a sandbox from this snapshot stands on, topmost first, each verified.
    /// Blocking.
    pub(crate) fn images(&self, id: &TemplateId) -> Result<Vec<PathBuf>> {
        let top = self.get(id).ok_or_else(|| self.missing(id))?;
        let mut images = Vec::new();
        for layer in std::iter::once(&top.id).chain(&top.parents) {
            let snapshot = self.get(layer).ok_or_else(|| Error::Damaged {
                what: format!("snapshot {id}"),
                message: format!("the snapshot {layer} that it stands on is gone"),
            })?;
            let image = self.place(layer).join(IMAGE);
            self.verify(&snapshot, &image)?;
            images.push(image);
        }
        Ok(images)
    }

    /// Why there is none of this name.
    pub(crate) fn missing(&self, id: &TemplateId) -> Error {
        match self.unreadable.get(id.as_str()) {
            Some(reason) => Error::Damaged {
                what: format!("snapshot {id}"),
                message: format!("{reason} (its files are kept)"),
            },
            None => Error::TemplateNotFound(id.clone()),
        }
    }

    fn verify(&self, snapshot: &Snapshot, image: &Path) -> Result<()> {
        if self.verified.lock().contains(&snapshot.id) {
            return Ok(());
        }
        let found = checksum(image).map_err(failed)?;
        if found.hex != snapshot.checksum {
            return Err(Error::Damaged {
                what: format!("snapshot {}", snapshot.id),
                message: "its image does not match its checksum".to_owned(),
            });
        }
        self.verified.lock().insert(snapshot.id.clone());
        Ok(())
    }

    /// From here on nobody can use it.
    pub(crate) fn forget(&self, id: &TemplateId) -> Option<Snapshot> {
        self.verified.lock().remove(id);
        self.known.lock().remove(id)
    }

    /// Removes what is left of a forgotten one; one that cannot be removed is known again.
    /// Idempotent; whether anybody needs it is the caller's to know. Blocking.
    pub(crate) fn remove(&self, id: &TemplateId, forgotten: Option<Snapshot>) -> Result<()> {
        let (place, going) = (self.place(id), self.folder.join(format!("{id}.old")));
        // For good before it is forgotten elsewhere: nobody would look for it again.
        match durable::rename(&place, &going) {
            Ok(()) => {
                // It is gone: what is left takes only room, until the next start.
                if let Err(error) = fs::remove_dir_all(&going) {
                    tracing::warn!(snapshot = %id, %error, "files of a deleted snapshot are left; the next start removes them");
                }
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                // Renamed and not known to be on the disk is neither here nor there.
                if let Some(snapshot) = forgotten
                    && place.exists()
                {
                    self.known.lock().insert(id.clone(), snapshot);
                }
                Err(failed(error))
            }
        }
    }

    fn place(&self, id: &TemplateId) -> PathBuf {
        self.folder.join(id.as_str())
    }

    fn unfinished(&self, id: &TemplateId) -> PathBuf {
        self.folder.join(format!("{id}.new"))
    }
}

fn read_manifest(folder: &Path) -> std::io::Result<Snapshot> {
    let text = fs::read(folder.join(MANIFEST))?;
    serde_json::from_slice(&text).map_err(std::io::Error::other)
}

fn failed(source: std::io::Error) -> Error {
    Error::io("could not keep the snapshot", source)
}
