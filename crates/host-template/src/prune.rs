use std::path::{Path, PathBuf};

use crate::{
    Result,
    layer::{BUILDING, remove_all, sorted_names},
    prepare::KINDS,
};

/// Removes the layers below `dir` that are not in `keep` (the overlays of the current template
/// and of every sandbox that runs on an older build). Returns what it removed.
pub fn prune(dir: &Path, keep: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for name in sorted_names(dir)? {
        let Some(text) = name.to_str() else { continue };
        let ours = text.starts_with(BUILDING)
            || text
                .split_once('-')
                .is_some_and(|(kind, _)| KINDS.contains(&kind));
        let path = dir.join(&name);
        if ours && !keep.contains(&path) {
            remove_all(&path)?;
            removed.push(path);
        }
    }
    Ok(removed)
}
