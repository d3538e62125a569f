use std::{
    collections::HashMap,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use fs_err as fs;
use parking_lot::Mutex;
use soulbox_durable as durable;
use soulbox_sys::freeze::{self, FrozenFileSystem};

use crate::{
    Content, Error, Result,
    disk_reserve::DiskReserve,
    image,
    mount::{self, DISK, MOUNT},
};

const IMAGE: &str = "image.ext4";
/// A volume that is being made, or deleted. What is left of one is removed at the next start.
const NEW: &str = "new";
const GONE: &str = "gone";

/// All volumes of a server. Everything here blocks.
#[derive(Debug)]
pub struct Volumes {
    folder: PathBuf,
    /// One lock per volume, so that none is mounted twice or used while it goes.
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    reserve: DiskReserve,
}

#[derive(Debug, Default)]
struct Slot {
    mounted: Mutex<Option<Arc<Content>>>,
}

impl Volumes {
    /// `folder` is made when absent. Volumes are mounted when they are first used.
    pub fn open(folder: PathBuf) -> Result<Arc<Self>> {
        Self::open_above(folder, 0)
    }

    /// As [`Self::open`]; so many bytes of the host's disk stay free, also where less is usual.
    pub fn open_above(folder: PathBuf, min_free: u64) -> Result<Arc<Self>> {
        durable::make_folder(&folder, 0o700).map_err(Error::io("make the folder for volumes"))?;
        let volumes = Self {
            reserve: DiskReserve::new(folder.clone(), min_free),
            folder,
            slots: Mutex::default(),
        };
        volumes
            .tidy()
            .map_err(Error::io("tidy the folder of volumes"))?;
        Ok(Arc::new(volumes))
    }

    /// A new, empty volume, on the disk when this returns. `id` is a UUID.
    pub fn create(&self, id: &str, limit_mib: u32) -> Result<()> {
        let folder = self.folder_of(id)?;
        let slot = self.slot(id);
        let _held = slot.mounted.lock();
        if folder.exists() {
            return Err(Error::Exists);
        }
        self.reserve.check()?;
        let new = folder.with_extension(NEW);
        let made = make(&new, limit_mib).and_then(|()| durable::rename(&new, &folder));
        made.map_err(|error| {
            if let Err(error) = remove_folder(&new) {
                tracing::warn!(volume = id, %error, "could not remove a volume that was not made");
            }
            Error::of("make the volume", error)
        })
    }

    /// Its files are gone when this returns, except those that somebody has open. Idempotent.
    /// Whether sandboxes use it is for the caller to know.
    pub fn delete(&self, id: &str) -> Result<()> {
        let folder = self.folder_of(id)?;
        let slot = self.slot(id);
        let mut mounted = slot.mounted.lock();
        if folder.exists() {
            let gone = folder.with_extension(GONE);
            let removed = mount::unmount_lazily(&folder)
                // Not to come back as one that nobody has on record.
                .and_then(|()| durable::rename(&folder, &gone))
                .and_then(|()| remove_folder(&gone));
            removed.map_err(Error::io("delete the volume"))?;
        }
        *mounted = None;
        drop(mounted);
        self.slots.lock().remove(id);
        Ok(())
    }

    /// What it takes of the machine's disk; nothing when it is not there. Blocking.
    pub fn bytes_on_disk(&self, id: &str) -> u64 {
        let Ok(folder) = self.folder_of(id) else {
            return 0;
        };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| entry.metadata().ok());
        // The folder where it is mounted is not its image.
        let files = files.filter(std::fs::Metadata::is_file);
        files.map(|facts| facts.blocks() * 512).sum()
    }

    pub fn exists(&self, id: &str) -> bool {
        self.folder_of(id).is_ok_and(|folder| folder.exists())
    }

    /// Makes it ready for the sandboxes of its node, which find it by its id. Idempotent.
    pub fn mount(&self, id: &str) -> Result<()> {
        self.content(id).map(drop)
    }

    /// The volume's files, for clients. Mounts it when needed.
    pub fn content(&self, id: &str) -> Result<Arc<Content>> {
        let folder = self.folder_of(id)?;
        let slot = self.slot(id);
        let mut mounted = slot.mounted.lock();
        if let Some(content) = &*mounted {
            return Ok(Arc::clone(content));
        }
        if !folder.exists() {
            self.slots.lock().remove(id);
            return Err(Error::NoVolume(id.to_owned()));
        }
        mount::mount(&folder, &folder.join(IMAGE)).map_err(|source| Error::Io {
            what: "mount the volume",
            source,
        })?;
        let content = Arc::new(Content::open(&folder.join(DISK), self.reserve.clone())?);
        content.clear_staging()?;
        *mounted = Some(Arc::clone(&content));
        Ok(content)
    }

    /// The ids of all that are whole.
    pub fn ids(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(Error::io("list the volumes"))? {
            let name = entry.map_err(Error::io("list the volumes"))?.file_name();
            if let Some(id) = name.to_str()
                && self.folder_of(id).is_ok()
            {
                ids.push(id.to_owned());
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Where the image of a volume is.
    pub fn image(&self, id: &str) -> Result<PathBuf> {
        Ok(self.folder_of(id)?.join(IMAGE))
    }

    /// Copies the image of a volume as it is at one moment. Whoever writes into it waits while what
    /// changed during the copy is copied again.
    pub fn capture(&self, id: &str, target: &Path) -> Result<()> {
        let image = self.image(id)?;
        // Held, so that it stays mounted.
        let _content = self.content(id)?;
        let failed = Error::io("copy the volume");
        capture(&image, &self.folder_of(id)?.join(DISK), target).map_err(failed)
    }

    /// Unmounts everything, also what an earlier server was killed over. Sandboxes keep what they have; the next server finds it again.
    pub fn close(&self) {
        let slots: Vec<_> = self.slots.lock().drain().collect();
        for (id, slot) in slots {
            let mut mounted = slot.mounted.lock();
            *mounted = None;
            let Ok(folder) = self.folder_of(&id) else {
                continue;
            };
            if let Err(error) = mount::unmount_lazily(&folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(volume = id, %error, "could not unmount a volume");
            }
        }
    }

    fn slot(&self, id: &str) -> Arc<Slot> {
        Arc::clone(self.slots.lock().entry(id.to_owned()).or_default())
    }

    /// The id becomes a part of a path.
    fn folder_of(&self, id: &str) -> Result<PathBuf> {
        match uuid::Uuid::try_parse(id) {
            Ok(parsed) if parsed.hyphenated().to_string() == id => Ok(self.folder.join(id)),
            _ => Err(Error::NoVolume(id.to_owned())),
        }
    }

    /// Removes what is half made or half gone, and takes over what a killed server left mounted.
    fn tidy(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let extension = path.extension().and_then(|text| text.to_str());
            if matches!(extension, Some(NEW | GONE)) {
                mount::unmount_lazily(&path)?;
                remove_folder(&path)?;
            } else if let Some(id) = path.file_name().and_then(|name| name.to_str())
                && self.folder_of(id).is_ok()
                && mount::has_mounts(&path)?
            {
                self.slot(id);
                thaw(&path, id)?;
            }
        }
        Ok(())
    }
}

/// A server may have been killed while it copied this one: nobody else would let it go on.
fn thaw(folder: &Path, id: &str) -> io::Result<()> {
    let disk = fs::File::open(folder.join(DISK))?;
    if mount::is_mounted(&folder.join(DISK))? && freeze::thaw(disk.file())? {
        tracing::warn!(
            volume = id,
            "it stood still since a backup was cut short; it goes on"
        );
    }
    Ok(())
}

fn capture(image: &Path, mounted: &Path, target: &Path) -> io::Result<()> {
    let folder = fs::File::open(mounted)?;
    let shares = soulbox_sparse::share_blocks(image, target)?;
    if !shares {
        // Most of what is to be written is written while others still write.
        rustix::fs::syncfs(folder.file())?;
        soulbox_sparse::copy_sparse(image, target)?;
    }
    let _frozen = FrozenFileSystem::freeze(folder.into_parts().0.into())?;
    if shares {
        soulbox_sparse::share_blocks(image, target).map(drop)
    } else {
        soulbox_sparse::copy_differences(image, target)
    }
}

fn make(folder: &Path, limit_mib: u32) -> io::Result<()> {
    fs::create_dir(folder)?;
    fs::create_dir(folder.join(DISK))?;
    fs::create_dir(folder.join(MOUNT))?;
    image::format(&folder.join(IMAGE), limit_mib)?;
    durable::sync_folder(folder)
}

/// Without looking into the mount points: were something mounted there, it must stay.
fn remove_folder(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(IMAGE)).or_else(absent)?;
    fs::remove_dir_all(folder.join(IMAGE).with_extension("tree")).or_else(absent)?;
    fs::remove_dir(folder.join(MOUNT)).or_else(absent)?;
    fs::remove_dir(folder.join(DISK)).or_else(absent)?;
    fs::remove_dir(folder).or_else(absent)
}

fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
