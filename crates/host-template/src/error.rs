use std::{
    io,
    path::{Path, PathBuf},
};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{} is not a link into /usr: the base template needs a host whose /bin, /sbin and /lib \
         are part of /usr (Debian 12, Ubuntu 20.04, Fedora and later are; install `usrmerge` on older ones)",
        path.display()
    )]
    NotUsrMerged { path: PathBuf },
    #[error("{} holds no PEM certificate", path.display())]
    NoCertificate { path: PathBuf },
    #[error("could not {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Names the file in an error: `.at("read", path)`.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        })
    }
}
