use std::{io, path::PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not open the database file {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the database could not be brought up to date")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("the database refused a statement")]
    Database(#[from] sqlx::Error),
    /// It is committed, and a power cut may undo that.
    #[error(
        "what was written to the database could not be put on the disk: it holds, but a power cut \
         may undo it"
    )]
    Unsynced(#[source] io::Error),
    /// A row holds what this version never writes.
    #[error("table {table} holds a bad {column}")]
    Corrupt {
        table: &'static str,
        column: &'static str,
    },
}

impl Error {
    /// It was written all the same: whoever reads finds it.
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Unsynced(_))
    }

    /// Nothing was written because there is no room.
    pub fn is_disk_full(&self) -> bool {
        const SQLITE_FULL: &str = "13";
        match self {
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| code == SQLITE_FULL)
            }
            Self::File { source, .. } | Self::Unsynced(source) => {
                source.kind() == io::ErrorKind::StorageFull
            }
            _ => false,
        }
    }
}
