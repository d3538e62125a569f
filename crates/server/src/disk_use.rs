//! What each kind of thing takes of the data folder's disk, for the metrics page.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use soulbox_backup::bytes_on_disk;

/// A kind and where it is. Few enough for a label.
const KINDS: [(&str, &str); 6] = [
    ("sandboxes", "sandboxes"),
    ("snapshots", "snapshots"),
    ("volumes", "volumes"),
    ("templates", "templates"),
    ("images", "images"),
    ("broken", "quarantine"),
];
/// Folders whose content never changes once they have their name: each is counted once.
const UNCHANGING: [&str; 3] = ["templates/steps", "templates/base", "images/layers"];

/// Looks at the disk now and then.
#[derive(Debug, Default)]
pub(crate) struct DiskUse {
    counted: HashMap<PathBuf, u64>,
}

impl DiskUse {
    /// Bytes by kind. Blocking.
    pub(crate) fn look(&mut self, data_dir: &Path) -> Vec<(&'static str, u64)> {
        let mut still = HashMap::new();
        let mut bytes: Vec<_> = KINDS
            .into_iter()
            .map(|(kind, folder)| (kind, self.below(data_dir, Path::new(folder), &mut still)))
            .collect();
        let database = ["soulbox.db", "soulbox.db-wal"].into_iter();
        let database = database.map(|name| bytes_on_disk(&data_dir.join(name)));
        bytes.push(("database", database.sum()));
        self.counted = still;
        bytes
    }

    fn below(&self, data_dir: &Path, folder: &Path, still: &mut HashMap<PathBuf, u64>) -> u64 {
        let entries = std::fs::read_dir(data_dir.join(folder));
        let mut sum = 0;
        for entry in entries.into_iter().flatten().flatten() {
            let name = folder.join(entry.file_name());
            sum += if UNCHANGING.iter().any(|path| Path::new(path) == name) {
                self.below(data_dir, &name, still)
            } else if UNCHANGING.iter().any(|path| Path::new(path) == folder) {
                let known = self.counted.get(&name).copied();
                let bytes = known.unwrap_or_else(|| bytes_on_disk(&entry.path()));
                still.insert(name, bytes);
                bytes
            } else if folder == Path::new("volumes") {
                // Not what is mounted there: that is in the image.
                bytes_on_disk(&entry.path().join("image.ext4"))
            } else {
                bytes_on_disk(&entry.path())
            };
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_bytes_and_layers_are_counted_once() {
        let data = tempfile::tempdir().unwrap();
        let write = |path: &str, kib: usize| {
            let path = data.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; kib << 10]).unwrap();
        };
        write("sandboxes/i1/disk.img", 100);
        write("images/layers/abc/file", 200);
        write("volumes/v1/image.ext4", 300);
        write("volumes/v1/mnt/file", 400);
        let mut disk = DiskUse::default();
        let of = |found: &[(&str, u64)], kind: &str| {
            found.iter().find(|(name, _)| *name == kind).unwrap().1 >> 10
        };
        let found = disk.look(data.path());
        assert!((100..120).contains(&of(&found, "sandboxes")), "{found:?}");
        assert!((200..220).contains(&of(&found, "images")), "{found:?}");
        assert!((300..320).contains(&of(&found, "volumes")), "{found:?}");
        assert_eq!(of(&found, "broken"), 0);
        write("images/layers/abc/more", 500);
        assert_eq!(of(&disk.look(data.path()), "images"), of(&found, "images"));
        std::fs::remove_dir_all(data.path().join("images/layers/abc")).unwrap();
        assert!(of(&disk.look(data.path()), "images") < 20);
    }
}
