use std::{
    io,
    path::{Path, PathBuf},
};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{} holds no whole backup: a backup is a folder with manifest.json in it, and one whose name \
         ends in .new was cut short",
        .0.display()
    )]
    NoBackup(PathBuf),
    #[error(
        "this backup has format {found}, and this program knows those up to {known}: use the version \
         of soulbox that made it ({version}) or a newer one"
    )]
    Newer {
        found: u32,
        known: u32,
        version: String,
    },
    #[error(
        "{} of the backup is not what was written ({why}): the backup is damaged, and nothing was \
         restored; use another one",
        path.display()
    )]
    Damaged { path: PathBuf, why: String },
    #[error(
        "{} is not empty: restore into a folder that does not exist or is empty",
        .0.display()
    )]
    NotEmpty(PathBuf),
    #[error(
        "{} has {} MiB free, and about {} MiB are needed{}: free some, or choose another disk",
        path.display(), free >> 20, needed.div_ceil(1 << 20), kept_for(*reserve)
    )]
    NoSpace {
        path: PathBuf,
        free: u64,
        needed: u64,
        reserve: u64,
    },
    #[error("stopped before it was complete")]
    Stopped,
}

fn kept_for(reserve: u64) -> String {
    if reserve == 0 {
        return String::new();
    }
    format!(
        " beside the {} MiB that the server keeps in reserve on the same disk",
        reserve >> 20
    )
}

pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            what,
            path: path.to_owned(),
            source: source.into(),
        })
    }
}
