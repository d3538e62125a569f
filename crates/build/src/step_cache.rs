//! The cache of steps: `steps/<key>-<n>/` holds what a step changed, for the next build.
//!
//! A directory never changes once it has its name: sandboxes may have it mounted. A step that runs
//! again (by force, or because what was there is damaged) makes one with the next number, and the
//! highest number is the one that counts.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use soulbox_runtime::AddedLayer;
use soulbox_types::{Chain, UnixMillis};
use tokio::sync::OwnedMutexGuard;

use crate::{
    durable::{self, UNFINISHED, blocking},
    key::Key,
    lease::{Lease, Leases},
    removal::remove_tree,
    state::State,
};

const METADATA: &str = "meta.json";

#[derive(Debug)]
pub(crate) struct StepCache {
    folder: PathBuf,
    leases: Leases,
    latest: Mutex<HashMap<String, u64>>,
    running: Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>,
}

/// `meta.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StepMetadata {
    /// After the step.
    state: State,
    /// Another one each time the step runs: later steps depend on exactly these files.
    generation: String,
    layers: Vec<KeptLayer>,
    /// Nothing will ever ask for it again, once its build is gone.
    #[serde(default)]
    of_one_build: bool,
    /// For people who look into the folder.
    label: String,
    created_at: UnixMillis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeptLayer {
    target: PathBuf,
    /// Below the step's own.
    directory: String,
}

/// The result of a step: state, and a directory for each mount point that it changed.
#[derive(Debug, Clone)]
pub(crate) struct StepResult {
    pub(crate) state: State,
    pub(crate) generation: String,
    pub(crate) layers: Vec<AddedLayer>,
    pub(crate) lease: Arc<Lease>,
}

/// A step's directory before it has its name. Dropped, it goes.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    done: PathBuf,
    key: Key,
    number: u64,
}

impl Draft {
    /// Not made yet.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let remove = move || {
            if let Err(error) = remove_tree(&path) {
                tracing::warn!(path = %path.display(), error = %Chain(&error), "an unfinished step stays until the next start");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl StepCache {
    /// Blocking. What earlier runs did not finish goes.
    pub(crate) fn open(folder: PathBuf, leases: Leases) -> io::Result<Self> {
        durable::make_private(&folder)?;
        durable::remove_unfinished(&folder)?;
        let mut latest = HashMap::new();
        for entry in fs_err::read_dir(&folder)? {
            if let Some((key, number)) = parse(entry?.file_name()) {
                let known = latest.entry(key).or_insert(number);
                *known = number.max(*known);
            }
        }
        Ok(Self {
            folder,
            leases,
            latest: Mutex::new(latest),
            running: Mutex::default(),
        })
    }

    /// Held by the build that runs the step of this key; others wait for what it makes.
    pub(crate) async fn lock(&self, key: &Key) -> OwnedMutexGuard<()> {
        let lock = {
            let mut running = self.running.lock();
            running.retain(|_, lock| lock.strong_count() > 0);
            let known = running.get(key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::default();
                running.insert(key.clone(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }

    /// Whole, or not at all.
    pub(crate) async fn find(&self, key: &Key) -> Option<StepResult> {
        let number = *self.latest.lock().get(key.as_str())?;
        let path = self.folder.join(name(key, number));
        // Before it is looked at, so that what is found stays.
        let lease = self.leases.hold([path.clone()]);
        match blocking(move || read(&path)).await {
            Ok((description, layers)) => Some(StepResult {
                state: description.state,
                generation: description.generation,
                layers,
                lease,
            }),
            Err(error) => {
                tracing::warn!(%key, error = %Chain(&error), "a cached step is damaged and will be made anew");
                None
            }
        }
    }

    /// The caller holds the key's lock.
    pub(crate) fn begin(&self, key: &Key) -> Draft {
        let number = self
            .latest
            .lock()
            .get(key.as_str())
            .map_or(0, |number| number + 1);
        let done = self.folder.join(name(key, number));
        Draft {
            path: self.unfinished(),
            done,
            key: key.clone(),
            number,
        }
    }

    /// `added` are directories in the draft, written out already.
    pub(crate) async fn finish(
        &self,
        draft: Draft,
        state: State,
        added: Vec<AddedLayer>,
        label: String,
        of_one_build: bool,
    ) -> io::Result<StepResult> {
        let mut layers = Vec::new();
        for layer in added {
            let inside = layer.directory.strip_prefix(&draft.path);
            let directory = inside
                .ok()
                .and_then(Path::to_str)
                .ok_or_else(|| io::Error::other("a layer lies outside of its step"))?;
            layers.push(KeptLayer {
                target: layer.target,
                directory: directory.to_owned(),
            });
        }
        let description = StepMetadata {
            // Without files, a step has only one possible result.
            generation: if layers.is_empty() {
                String::new()
            } else {
                uuid::Uuid::new_v4().to_string()
            },
            state,
            layers,
            of_one_build,
            label,
            created_at: UnixMillis::now(),
        };
        let lease = self.leases.hold([draft.done.clone()]);
        let (key, number, done) = (draft.key.clone(), draft.number, draft.done.clone());
        let written = blocking(move || {
            fs_err::create_dir_all(&draft.path)?;
            let text = serde_json::to_vec(&description)?;
            soulbox_durable::write(&draft.path.join(METADATA), 0o600, &text)?;
            soulbox_durable::rename(&draft.path, &draft.done)?;
            Ok(description)
        });
        let description = written.await?;
        self.latest.lock().insert(key.as_str().to_owned(), number);
        Ok(StepResult {
            layers: placed(&description, &done),
            state: description.state,
            generation: description.generation,
            lease,
        })
    }

    /// Every step that is here. Blocking.
    pub(crate) fn directories(&self) -> io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for entry in fs_err::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.file_name().and_then(parse).is_some() {
                all.push(path);
            }
        }
        Ok(all)
    }

    /// Removes directories that no build uses (`used` are those of all templates) and that
    /// nothing asked for lately. Blocking.
    pub(crate) fn collect(&self, used: &HashSet<PathBuf>, age: Duration) -> io::Result<()> {
        for entry in fs_err::read_dir(&self.folder)? {
            let path = entry?.path();
            let Some((key, number)) = path.file_name().and_then(parse) else {
                continue;
            };
            if used.iter().any(|layer| layer.starts_with(&path)) {
                continue;
            }
            let current = self.latest.lock().get(&key) == Some(&number);
            if current && !expired(&path, age) {
                continue;
            }
            self.remove(&path, &key, number)?;
        }
        Ok(())
    }

    /// A name that nothing has: what goes may still be going when the next one comes.
    fn unfinished(&self) -> PathBuf {
        let unique = uuid::Uuid::new_v4();
        self.folder.join(format!("{unique}.{UNFINISHED}"))
    }

    fn remove(&self, path: &Path, key: &str, number: u64) -> io::Result<()> {
        let gone = self.unfinished();
        {
            // `find` takes its lease while nobody holds the numbers, after it has read one there.
            let mut latest = self.latest.lock();
            if self.leases.held().contains(path) {
                return Ok(());
            }
            if latest.get(key) == Some(&number) {
                latest.remove(key);
            }
            fs_err::rename(path, &gone)?;
        }
        tracing::info!(step = %path.display(), "removed a step that nothing uses");
        remove_tree(&gone)
    }
}

fn name(key: &Key, number: u64) -> String {
    format!("{key}-{number}")
}

fn parse(name: impl AsRef<std::ffi::OsStr>) -> Option<(String, u64)> {
    let (key, number) = name.as_ref().to_str()?.split_once('-')?;
    Some((key.to_owned(), number.parse().ok()?))
}

fn placed(description: &StepMetadata, folder: &Path) -> Vec<AddedLayer> {
    let layers = description.layers.iter();
    layers
        .map(|layer| AddedLayer {
            target: layer.target.clone(),
            directory: folder.join(&layer.directory),
        })
        .collect()
}

fn read(folder: &Path) -> io::Result<(StepMetadata, Vec<AddedLayer>)> {
    let path = folder.join(METADATA);
    let description: StepMetadata = serde_json::from_slice(&fs_err::read(&path)?)?;
    let layers = placed(&description, folder);
    for layer in &layers {
        if !fs_err::symlink_metadata(&layer.directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
    }
    // What was used lately stays longest.
    let file = std::fs::File::options().write(true).open(&path)?;
    file.set_modified(SystemTime::now())?;
    Ok((description, layers))
}

fn expired(folder: &Path, age: Duration) -> bool {
    let path = folder.join(METADATA);
    let read = || -> io::Result<bool> {
        let description: StepMetadata = serde_json::from_slice(&fs_err::read(&path)?)?;
        let used = fs_err::metadata(&path)?.modified()?;
        let unused = SystemTime::now().duration_since(used).unwrap_or_default();
        Ok(description.of_one_build || unused > age)
    };
    // What cannot be read cannot be used.
    read().unwrap_or(true)
}

#[cfg(test)]
mod tests;
