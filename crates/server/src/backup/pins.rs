//! What is to be copied has a second name until it is: whoever deletes a snapshot or a volume
//! meanwhile is not kept waiting, and the backup has what its database says.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use fs_err as fs;

const FOLDER: &str = "backup.pins";

/// Hard links to images. Removed when this is dropped.
#[derive(Debug)]
pub(super) struct Pins {
    folder: PathBuf,
    pinned: BTreeMap<PathBuf, PathBuf>,
}

impl Pins {
    pub(super) fn new(data_dir: &Path) -> io::Result<Self> {
        remove_left(data_dir)?;
        let folder = data_dir.join(FOLDER);
        soulbox_durable::make_folder(&folder, 0o700)?;
        Ok(Self {
            folder,
            pinned: BTreeMap::new(),
        })
    }

    /// `false`: it is gone.
    pub(super) fn pin(&mut self, file: &Path) -> io::Result<bool> {
        if self.pinned.contains_key(file) {
            return Ok(true);
        }
        let pin = self.folder.join(self.pinned.len().to_string());
        match fs::hard_link(file, &pin) {
            Ok(()) => {
                self.pinned.insert(file.to_owned(), pin);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn of(&self, file: &Path) -> Option<&Path> {
        self.pinned.get(file).map(PathBuf::as_path)
    }

    /// Nothing needs it any more: what was deleted meanwhile gives its space back.
    pub(super) fn release(&self, file: &Path) {
        if let Some(pin) = self.pinned.get(file) {
            fs::remove_file(pin).ok();
        }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, "links of a backup are left; the next start removes them");
        }
    }
}

/// Of a server that was killed while it was copying.
pub(crate) fn remove_left(data_dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(data_dir.join(FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_outlives_its_name_and_nothing_outlives_the_pins() {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join("image");
        fs::write(&file, "content").unwrap();
        fs::create_dir(data.path().join(FOLDER)).unwrap();
        fs::write(data.path().join(FOLDER).join("0"), "left by a crash").unwrap();
        let mut pins = Pins::new(data.path()).unwrap();
        assert!(pins.pin(&file).unwrap() && pins.pin(&file).unwrap());
        assert!(!pins.pin(&data.path().join("absent")).unwrap());
        fs::remove_file(&file).unwrap();
        let pin = pins.of(&file).unwrap().to_owned();
        assert_eq!(fs::read_to_string(&pin).unwrap(), "content");
        pins.release(&file);
        assert!(!pin.exists());
        drop(pins);
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    }
}
