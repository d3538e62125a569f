//! A folder of backups.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use fs_err as fs;
use jiff::Timestamp;

use crate::{Error, Manifest, Result, error::At, manifest::FILE};

const UNFINISHED: &str = "new";

/// Where a new backup goes.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    pub(crate) unfinished: PathBuf,
    pub(crate) finished: PathBuf,
    /// The newest whole one: what it has of the same is not copied again.
    pub(crate) previous: Option<(PathBuf, Manifest)>,
}

impl Place {
    /// In `folder`, which is made when absent, for its owner alone; one that is there keeps its mode:
    /// the backup inside is closed to others in any case. What an earlier backup there did not finish
    /// is removed.
    pub fn prepare(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            soulbox_durable::make_folder(folder, 0o700).at("make", folder)?;
            fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
                .at("close to others", folder)?;
        }
        for entry in fs::read_dir(folder).at("list", folder)? {
            let path = entry.at("list", folder)?.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) && stamp(&path) {
                fs::remove_dir_all(&path).at("remove", &path)?;
            }
        }
        let previous = newest(folder)?;
        let previous = previous.and_then(|path| match Manifest::read(&path) {
            Ok(manifest) => Some((path, manifest)),
            Err(error) => {
                tracing::warn!(%error, "the previous backup cannot be used; everything is copied");
                None
            }
        });
        let mut at = Timestamp::now();
        // Two within a second have names of their own, in their order.
        let finished = loop {
            let name = at.strftime("%Y%m%dT%H%M%SZ").to_string();
            let path = folder.join(name);
            if !path.exists() {
                break path;
            }
            at += jiff::SignedDuration::from_secs(1);
        };
        let unfinished = finished.with_extension(UNFINISHED);
        fs::create_dir(&unfinished).at("make", &unfinished)?;
        fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o700))
            .at("close to others", &unfinished)?;
        Ok(Self {
            folder: folder.to_owned(),
            unfinished,
            finished,
            previous,
        })
    }

    pub(crate) fn finish(&self) -> Result<PathBuf> {
        let (from, to) = (&self.unfinished, &self.finished);
        soulbox_durable::rename(from, to).at("give its name to", to)?;
        Ok(to.clone())
    }

    /// Removes what was written so far.
    pub fn abandon(&self) {
        if let Err(error) = fs::remove_dir_all(&self.unfinished) {
            tracing::warn!(folder = %self.folder.display(), %error, "an unfinished backup is left; the next one removes it");
        }
    }
}

/// The backup that a path means: itself, or the newest in it.
pub fn find(path: &Path) -> Result<PathBuf> {
    if path.join(FILE).is_file() {
        let unfinished = path.extension().is_some_and(|ending| ending == UNFINISHED);
        if !unfinished {
            return Ok(path.to_owned());
        }
    }
    let newest = if path.is_dir() { newest(path)? } else { None };
    newest.ok_or_else(|| Error::NoBackup(path.to_owned()))
}

fn newest(folder: &Path) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).at("list", folder)? {
        let path = entry.at("list", folder)?.path();
        if path.extension().is_none() && stamp(&path) && path.join(FILE).is_file() {
            found.push(path);
        }
    }
    Ok(found.into_iter().max())
}

/// Whether a name is that of a backup: others may keep other things beside them.
fn stamp(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        name.len() == 16
            && name.is_ascii()
            && digits(&name[..8])
            && &name[8..9] == "T"
            && digits(&name[9..15])
            && name.ends_with('Z')
    })
}
