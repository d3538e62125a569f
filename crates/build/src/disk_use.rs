//! What the builder's files take of the disk.
//!
//! Steps and layers never change once they have their name, so each is measured once.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use soulbox_template::Template;

use crate::{base::debian, durable::blocking, job::BuildContext};

/// More files than any image has; a tree that has more is measured in part.
const MOST_ENTRIES: usize = 5_000_000;

/// What builds stand on, and what nothing refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildDisk {
    /// Steps and image layers of builds, by their directories: what several share is here once.
    pub used: HashMap<PathBuf, u64>,
    /// Steps, image layers and uploads that can be made again: how many, and their bytes.
    pub unused: (u64, u64),
}

impl BuildDisk {
    /// The directories among these that a build has, with those above: a step has several layers.
    pub fn of<'a>(&'a self, template: &'a Template) -> impl Iterator<Item = (&'a Path, u64)> {
        let lower = template.overlays.iter().flat_map(|overlay| &overlay.lower);
        lower.filter_map(|layer| {
            layer
                .ancestors()
                .take(3)
                .find_map(|path| self.used.get_key_value(path))
                .map(|(path, bytes)| (path.as_path(), *bytes))
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sizes {
    known: Mutex<HashMap<PathBuf, u64>>,
}

impl Sizes {
    fn of(&self, path: &Path) -> u64 {
        if let Some(bytes) = self.known.lock().get(path) {
            return *bytes;
        }
        let bytes = tree_bytes(path);
        self.known.lock().insert(path.to_owned(), bytes);
        bytes
    }

    /// Only of those that are still there.
    fn forget_gone(&self, here: &HashSet<PathBuf>) {
        self.known.lock().retain(|path, _| here.contains(path));
    }
}

/// `without`: builds that are about to go. `keep`: those that sandboxes and snapshots use.
pub(crate) async fn measure(
    context: &Arc<BuildContext>,
    without: &HashSet<String>,
    keep: &[Arc<Template>],
) -> io::Result<BuildDisk> {
    let held = context.leases.held();
    let templates = context.templates.all();
    let staying = templates
        .iter()
        .filter(|one| !without.contains(&one.build_id));
    let layers: HashSet<PathBuf> = staying
        .chain(keep)
        .flat_map(|one| {
            one.overlays
                .iter()
                .flat_map(|overlay| overlay.lower.clone())
        })
        .chain(held.iter().cloned())
        .collect();
    let shared = Arc::clone(context);
    blocking(move || {
        let config = &shared.config;
        let mut all = shared.steps.directories()?;
        all.extend(shared.images.layers());
        let mut disk = BuildDisk::default();
        for path in &all {
            let bytes = shared.sizes.of(path);
            if layers.iter().any(|layer| layer.starts_with(path)) {
                disk.used.insert(path.clone(), bytes);
            } else {
                disk.unused.0 += 1;
                disk.unused.1 += bytes;
            }
        }
        shared.sizes.forget_gone(&all.into_iter().collect());
        let lasting = config.lasting_files_of.as_ref();
        let mut files = shared.files.unused(lasting, &held)?;
        files.extend(debian::archives(&config.templates_dir)?);
        for path in files {
            disk.unused.0 += 1;
            disk.unused.1 += tree_bytes(&path);
        }
        Ok(disk)
    })
    .await
}

/// Links are not followed. What cannot be read counts for nothing: trees come from strangers.
fn tree_bytes(top: &Path) -> u64 {
    let mut bytes = 0;
    let mut seen = 0;
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let Ok(facts) = path.symlink_metadata() else {
            continue;
        };
        bytes += facts.blocks() * 512;
        seen += 1;
        if seen > MOST_ENTRIES {
            break;
        }
        if facts.is_dir()
            && let Ok(entries) = std::fs::read_dir(&path)
        {
            waiting.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_as_large_as_its_files_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs_err::write(&outside, vec![1; 1 << 20]).unwrap();
        let tree = folder.path().join("tree");
        fs_err::create_dir_all(tree.join("a/b")).unwrap();
        fs_err::write(tree.join("a/b/file"), vec![1; 200_000]).unwrap();
        fs_err::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
        let bytes = tree_bytes(&tree);
        assert!((200_000..600_000).contains(&bytes), "{bytes}");
        assert_eq!(tree_bytes(&folder.path().join("absent")), 0);
    }
}
