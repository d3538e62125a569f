//! The entries of a directory tree.
//!
//! Programs inside make trees as deep and as wide as they like. So the walk has no recursion, and
//! a listing, which is built in memory, has a limit in entries and one in text.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::entry::entry_info;
use crate::{
    proto::filesystem::{DIRECTORY, EntryInfo},
    users::Names,
};

pub(super) const MAX_ENTRIES: usize = 100_000;
/// Of all paths together. Deep in a tree each is up to four kilobytes.
const MAX_TEXT: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("more than {MAX_ENTRIES} entries or {} MiB of paths", MAX_TEXT >> 20)]
    TooMuch,
    #[error("{0}")]
    Read(#[from] io::Error),
}

/// Parent before children, in the order of names, never through links below the root. What lies so
/// deep that no path can name it is left out: no other call could reach it either.
pub(super) fn list(root: &Path, depth: u32, names: &Names) -> Result<Vec<EntryInfo>, Error> {
    let mut walk = Walk::default();
    walk.descend(root, depth)?;
    let mut entries = Vec::new();
    while let Some((path, depth)) = walk.waiting.pop() {
        // It may vanish while we look.
        let Ok(entry) = entry_info(&path, names) else {
            continue;
        };
        let is_directory = entry.kind == DIRECTORY && entry.symlink_target.is_none();
        entries.push(entry);
        if is_directory && depth > 1 {
            match walk.descend(&path, depth - 1) {
                Err(Error::Read(_)) | Ok(()) => {}
                Err(too_much) => return Err(too_much),
            }
        }
    }
    Ok(entries)
}

#[derive(Default)]
struct Walk {
    /// Still to be looked at, the next one last, with the levels that it may show.
    waiting: Vec<(PathBuf, u32)>,
    entries: usize,
    text: usize,
}

impl Walk {
    fn descend(&mut self, directory: &Path, depth: u32) -> Result<(), Error> {
        let first = self.waiting.len();
        for child in std::fs::read_dir(directory)?.filter_map(Result::ok) {
            let path = directory.join(child.file_name());
            self.entries += 1;
            self.text += path.as_os_str().len();
            if self.entries > MAX_ENTRIES || self.text > MAX_TEXT {
                return Err(Error::TooMuch);
            }
            self.waiting.push((path, depth));
        }
        if let Some(children) = self.waiting.get_mut(first..) {
            children.sort_unstable_by(|(a, _), (b, _)| b.file_name().cmp(&a.file_name()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::removal::deep_tree;

    fn names(entries: &[EntryInfo]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn parents_come_before_their_children_and_names_in_order() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["b/y", "b/x", "a"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        std::fs::write(root.path().join("b.txt"), "").unwrap();
        let list = |depth| list(root.path(), depth, &Names::load()).unwrap();
        assert_eq!(names(&list(1)), ["a", "b", "b.txt"]);
        assert_eq!(names(&list(2)), ["a", "b", "x", "y", "b.txt"]);
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_listed_as_far_as_paths_go() {
        let root = tempfile::tempdir().unwrap();
        deep_tree(root.path(), 3_000);
        let found = on_a_small_stack(root.path().to_owned(), u32::MAX).unwrap();
        assert!(found > 1_900, "{found}");
        assert_eq!(on_a_small_stack(root.path().to_owned(), 700).unwrap(), 700);
        crate::removal::remove_tree(&root.path().join("d")).unwrap();
    }

    /// As small as those of envd's file threads.
    fn on_a_small_stack(root: PathBuf, depth: u32) -> Result<usize, Error> {
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || list(&root, depth, &Names::load()).map(|entries| entries.len()))
            .unwrap()
            .join()
            .unwrap()
    }

    #[test]
    fn long_paths_use_up_the_limit_long_before_the_number_of_entries_does() {
        let root = tempfile::tempdir().unwrap();
        let mut deep = root.path().to_owned();
        for _ in 0..15 {
            deep.push("n".repeat(250));
        }
        std::fs::create_dir_all(&deep).unwrap();
        for n in 0..MAX_TEXT / deep.as_os_str().len() {
            std::fs::write(deep.join(n.to_string()), "").unwrap();
        }
        let refused = list(root.path(), 100, &Names::load());
        assert!(matches!(refused, Err(Error::TooMuch)));
        assert_eq!(list(root.path(), 15, &Names::load()).unwrap().len(), 15);
    }
}
