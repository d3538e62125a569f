use std::{
    io,
    path::{Path, PathBuf},
};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Names the file in an error: `.at("read", path)`.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error {
            action,
            path: path.to_owned(),
            source: source.into(),
        })
    }
}
