//! What is copied, and in which order.
//!
//! ```text
//!  hold layers, pin images ─► copy the database ─► list sandboxes ─► hold and pin what is new
//!        │ nothing that the database names is deleted from here on
//!        └─► sandboxes, volumes ─► snapshots, layers, the rest ─► manifest ─► its name
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use fs_err as fs;
use soulbox_backup::{
    CopiedSandbox, Error, FORMAT, LeftOut, Manifest, Place, Watcher, Writer, bytes_on_disk,
    check_space,
};
use soulbox_node::{CopiedState, back_up_end};
use soulbox_template::Template;
use soulbox_types::{Chain, SandboxSpec, UnixMillis};

use super::{
    last::{self, LastBackup},
    pins::Pins,
};
use crate::{env_files, keys::DATABASE};

/// Small files of a data folder.
const FILES: [&str; 3] = ["seed", "templates/base/id", "templates/base/state.json"];
/// Folders of such files.
const FOLDERS: [&str; 3] = ["tls", "templates/logs", "ends/logs"];
/// Below these a template's layers are, each in a folder of its own.
const LAYERS: [&str; 4] = [
    "templates/base",
    "templates/steps",
    "templates/debian",
    "images/layers",
];

/// Where a backup comes from. Everything blocks.
pub(super) trait Source {
    fn data_dir(&self) -> &Path;
    /// Nobody removes these folders while the source lives.
    fn hold(&self, folders: Vec<PathBuf>);
    fn copy_database(&self, to: &Path) -> Result<()>;
    fn sandboxes(&self) -> Result<Vec<Arc<SandboxSpec>>>;
    /// Writes its folder. `None`: it is gone.
    fn copy_sandbox(&self, spec: &SandboxSpec, to: &Path) -> Result<Option<CopiedState>>;
    /// Its image, as it is at one moment. `false`: it is gone.
    fn copy_volume(&self, id: &str, to: &Path) -> Result<bool>;
    /// What is known not to be copied.
    fn left_out(&self) -> Vec<LeftOut>;
}

/// Takes a backup into `dir`. On error nothing of it is left there.
pub(super) fn take(
    source: &dyn Source,
    dir: &Path,
    watcher: &dyn Watcher,
) -> Result<(PathBuf, Manifest)> {
    let place = Place::prepare(dir)?;
    let job = Job {
        source,
        data: source.data_dir().to_owned(),
        writer: Writer::new(place, watcher),
        left_out: source.left_out(),
    };
    job.run(dir)
}

struct Job<'a> {
    source: &'a dyn Source,
    data: PathBuf,
    writer: Writer<'a>,
    left_out: Vec<LeftOut>,
}

/// What there is at the moment of the database.
struct Found {
    builds: BTreeMap<OsString, Vec<u8>>,
    /// Folders of layers, below the data folder.
    layers: BTreeSet<PathBuf>,
    snapshots: BTreeSet<String>,
    volumes: BTreeSet<String>,
}

impl Job<'_> {
    fn run(mut self, dir: &Path) -> Result<(PathBuf, Manifest)> {
        let mut pins = Pins::new(&self.data).context("could not keep what is to be copied")?;
        let mut found = Found {
            builds: BTreeMap::new(),
            layers: BTreeSet::new(),
            snapshots: BTreeSet::new(),
            volumes: BTreeSet::new(),
        };
        self.writer.goes_on(Path::new(DATABASE))?;
        self.look(&mut found, &mut pins)?;
        let ends = self.small_files("ends")?;
        self.source
            .copy_database(&self.writer.path(Path::new(DATABASE)))?;
        let sandboxes = self.source.sandboxes()?;
        // What was made since the first look, and is in the database.
        self.look(&mut found, &mut pins)?;

        let total = self.estimate(&found, &pins, &sandboxes);
        check_space(dir, total, Some(&self.data))?;
        self.writer.expect(total);
        self.writer.record(Path::new(DATABASE))?;
        for (name, content) in ends {
            self.writer.write(&Path::new("ends").join(name), &content)?;
        }
        let copied = self.copy_sandboxes(&sandboxes)?;
        let volumes = self.copy_volumes(&found, &pins)?;
        self.copy_small(&found)?;
        let snapshots = self.copy_snapshots(&found, &pins)?;
        self.copy_quarantine()?;
        self.copy_layers(&found)?;

        let manifest = Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: UnixMillis::now(),
            data_dir: self.data.clone(),
            host: host(),
            sandboxes: copied,
            snapshots,
            volumes,
            builds: found
                .builds
                .keys()
                .filter_map(|name| Path::new(name).file_stem())
                .map(|name| name.to_string_lossy().into_owned())
                .collect(),
            left_out: self.left_out,
            files: Vec::new(),
        };
        let (path, manifest) = self.writer.finish(manifest)?;
        let note = LastBackup {
            at: manifest.created_at,
            bytes: manifest.bytes(),
        };
        last::note(&self.data, note);
        Ok((path, manifest))
    }

    /// Finds what can be deleted by others, and sees that it stays.
    fn look(&self, found: &mut Found, pins: &mut Pins) -> Result<()> {
        for (name, content) in self.small_files("templates/builds")? {
            found.builds.insert(name, content);
        }
        let mut lower: BTreeSet<PathBuf> = BTreeSet::new();
        for content in found.builds.values() {
            // One that cannot be read is copied as it is, and needs no layers.
            if let Ok(template) = serde_json::from_slice::<Template>(content) {
                lower.extend(template.overlays.into_iter().flat_map(|each| each.lower));
            }
        }
        let base = self.data.join("templates/base");
        for entry in list(&base)? {
            if base.join(&entry).is_dir() {
                lower.insert(base.join(entry));
            }
        }
        let units: BTreeSet<PathBuf> = lower.iter().filter_map(|path| self.unit(path)).collect();
        let folders = units.iter().map(|unit| self.data.join(unit));
        self.source
            .hold(lower.iter().cloned().chain(folders).collect());
        found.layers.extend(units);

        for id in list(&self.data.join("snapshots"))? {
            let Some(id) = id.to_str().filter(|id| !id.contains('.')) else {
                continue;
            };
            let folder = self.data.join("snapshots").join(id);
            if pins.pin(&folder.join("disk.img"))? && pins.pin(&folder.join("manifest.json"))? {
                found.snapshots.insert(id.to_owned());
            }
        }
        for id in list(&self.data.join("volumes"))? {
            let Some(id) = id.to_str().filter(|id| !id.contains('.')) else {
                continue;
            };
            if pins.pin(&self.data.join("volumes").join(id).join("image.ext4"))? {
                found.volumes.insert(id.to_owned());
            }
        }
        Ok(())
    }

    /// The folder of a layer, below the data folder; `None` for one of the host.
    fn unit(&self, layer: &Path) -> Option<PathBuf> {
        let below = layer.strip_prefix(&self.data).ok()?;
        LAYERS.into_iter().find_map(|folder| {
            let name = below.strip_prefix(folder).ok()?.components().next()?;
            Some(Path::new(folder).join(name))
        })
    }

    fn small_files(&self, folder: &str) -> Result<BTreeMap<OsString, Vec<u8>>> {
        let folder = self.data.join(folder);
        let mut files = BTreeMap::new();
        for name in list(&folder)? {
            if Path::new(&name)
                .extension()
                .is_some_and(|ending| ending == "new")
            {
                continue;
            }
            let path = folder.join(&name);
            if path.is_dir() {
                continue;
            }
            match fs::read(path) {
                Ok(content) => drop(files.insert(name, content)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(files)
    }

    fn estimate(&self, found: &Found, pins: &Pins, sandboxes: &[Arc<SandboxSpec>]) -> u64 {
        let disks = sandboxes.iter().map(|spec| {
            let folder = self.data.join("sandboxes").join(spec.id.as_str());
            bytes_on_disk(&folder.join("disk.img"))
        });
        let snapshots = found.snapshots.iter().map(|id| {
            let path = Path::new("snapshots").join(id).join("disk.img");
            let word = snapshot_word(pins, &self.data.join("snapshots").join(id));
            match word {
                Some(word) if self.writer.has_before(&path, &word) => 0,
                _ => bytes_on_disk(&self.data.join(path)),
            }
        });
        let volumes = found.volumes.iter().map(|id| {
            let image = self.data.join("volumes").join(id).join("image.ext4");
            pins.of(&image).map_or(0, bytes_on_disk)
        });
        let layers = found.layers.iter().map(|unit| {
            let archive = PathBuf::from(format!("{}.tar", unit.display()));
            if self.writer.has_before(&archive, &word_of(unit)) {
                0
            } else {
                bytes_on_disk(&self.data.join(unit))
            }
        });
        let quarantine = bytes_on_disk(&self.data.join("quarantine"));
        disks
            .chain(snapshots)
            .chain(volumes)
            .chain(layers)
            .sum::<u64>()
            + quarantine
    }

    fn copy_sandboxes(&mut self, sandboxes: &[Arc<SandboxSpec>]) -> Result<Vec<CopiedSandbox>> {
        let mut copied = Vec::new();
        for spec in sandboxes {
            let path = Path::new("sandboxes").join(spec.id.as_str());
            self.writer.goes_on(&path)?;
            let folder = self.writer.path(&path);
            self.writer.make_folder(&path)?;
            let why = match self.source.copy_sandbox(spec, &folder) {
                Ok(Some(state)) => {
                    self.writer.record_folder(&path)?;
                    copied.push(CopiedSandbox {
                        id: spec.id.to_string(),
                        state: state.as_str().to_owned(),
                    });
                    continue;
                }
                Ok(None) => "it ended while the backup was taken".to_owned(),
                Err(error) if is_of_the_backup(&error) => return Err(error),
                Err(error) => {
                    let why = format!("it could not be copied: {}", Chain(&*error));
                    self.left_out.push(LeftOut {
                        what: format!("sandbox {}", spec.id),
                        why: why.clone(),
                    });
                    why
                }
            };
            fs::remove_dir_all(&folder)?;
            let detail = format!("it is not in the backup that was restored: {why}");
            self.writer.make_folder(Path::new("ends"))?;
            back_up_end(&self.writer.path(Path::new("ends")), spec, &detail)?;
            let end = Path::new("ends").join(format!("{}.json", spec.id));
            self.writer.record(&end)?;
        }
        Ok(copied)
    }

    fn copy_volumes(&mut self, found: &Found, pins: &Pins) -> Result<Vec<String>> {
        for id in &found.volumes {
            let path = Path::new("volumes").join(id).join("image.ext4");
            self.writer.goes_on(&path)?;
            self.writer.make_folder(&Path::new("volumes").join(id))?;
            let (image, to) = (self.data.join(&path), self.writer.path(&path));
            if !self.source.copy_volume(id, &to)?
                && let Some(pin) = pins.of(&image)
            {
                // Deleted meanwhile: nobody writes to it any more.
                soulbox_sparse::copy(pin, &to)?;
            }
            pins.release(&image);
            self.writer.record(&path)?;
        }
        Ok(found.volumes.iter().cloned().collect())
    }

    fn copy_small(&mut self, found: &Found) -> Result<()> {
        let folders = FOLDERS.into_iter().map(|folder| {
            let names = list(&self.data.join(folder))?;
            let paths = names
                .into_iter()
                .map(move |name| Path::new(folder).join(name));
            anyhow::Ok(paths.collect::<Vec<_>>())
        });
        let mut paths: Vec<PathBuf> = FILES.iter().map(PathBuf::from).collect();
        for folder in folders {
            paths.extend(folder?);
        }
        for path in paths {
            let from = self.data.join(&path);
            if from.is_file() {
                self.writer.copy(&from, &path, None)?;
            }
        }
        let key = env_files::without_address(&self.data)?;
        self.writer.write(Path::new("env"), key.as_bytes())?;
        for (name, content) in &found.builds {
            let path = Path::new("templates/builds").join(name);
            self.writer.write(&path, content)?;
        }
        Ok(())
    }

    fn copy_snapshots(&mut self, found: &Found, pins: &Pins) -> Result<Vec<String>> {
        for id in &found.snapshots {
            let folder = self.data.join("snapshots").join(id);
            let word = snapshot_word(pins, &folder);
            for name in ["manifest.json", "disk.img"] {
                let file = folder.join(name);
                let Some(pin) = pins.of(&file) else { continue };
                let path = Path::new("snapshots").join(id).join(name);
                self.writer.copy(pin, &path, word.as_deref())?;
                pins.release(&file);
            }
        }
        Ok(found.snapshots.iter().cloned().collect())
    }

    /// What cannot be used is worth keeping too, as long as it is there.
    fn copy_quarantine(&mut self) -> Result<()> {
        let quarantine = Path::new("quarantine");
        for id in list(&self.data.join(quarantine))? {
            let folder = quarantine.join(&id);
            for name in list(&self.data.join(&folder))? {
                let path = folder.join(&name);
                match self.writer.copy(&self.data.join(&path), &path, None) {
                    Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                        self.left_out.push(LeftOut {
                            what: path.display().to_string(),
                            why: "it was recovered or discarded while the backup was taken".into(),
                        });
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn copy_layers(&mut self, found: &Found) -> Result<()> {
        for unit in &found.layers {
            let from = self.data.join(unit);
            let too_long = self.writer.layer(&from, unit, &word_of(unit))?;
            self.left_out
                .extend(too_long.into_iter().map(|path| LeftOut {
                    what: path.display().to_string(),
                    why: "it is a device, or its name is too long".to_owned(),
                }));
        }
        Ok(())
    }
}

/// A layer's folder never changes once it has its name.
fn word_of(unit: &Path) -> String {
    unit.display().to_string()
}

/// A snapshot's image never changes, and its manifest has its checksum.
fn snapshot_word(pins: &Pins, folder: &Path) -> Option<String> {
    let text = fs::read(pins.of(&folder.join("manifest.json"))?).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(manifest.get("checksum")?.as_str()?.to_owned())
}

/// Names in a folder, in their order; none when there is no such folder.
fn list(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let mut names = names?;
    names.sort_unstable();
    Ok(names)
}

/// Whether an error is about the backup, not about the one thing that was copied.
fn is_of_the_backup(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let full = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
                    | io::ErrorKind::ReadOnlyFilesystem
            )
        });
        full || matches!(cause.downcast_ref(), Some(Error::Stopped))
    })
}

/// The operating system of this machine, as it calls itself.
pub(super) fn host() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(
        || "unknown".to_owned(),
        |name| name.trim_matches('"').to_owned(),
    )
}
