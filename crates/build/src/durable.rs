//! Folders whose content survives a crash of the machine.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::removal::remove_tree;

/// The ending of everything that is not finished.
pub(crate) const UNFINISHED: &str = "new";

/// Makes a folder that only the server enters: untrusted files in it may be set-uid.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    soulbox_durable::make_folder(folder, 0o700)?;
    fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Removes what an earlier run of the server did not finish.
pub(crate) fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != UNFINISHED) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            remove_tree(&path)?;
        } else {
            fs_err::remove_file(&path)?;
        }
    }
    Ok(())
}

pub(crate) async fn sync_folder(folder: PathBuf) -> io::Result<()> {
    blocking(move || soulbox_durable::sync_folder(&folder)).await
}

/// Work on the disk, off the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
