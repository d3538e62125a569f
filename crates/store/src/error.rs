use std::{borrow::Cow, io, path::PathBuf, time::Duration};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not open the database file {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the database's URL must begin with postgres:// or postgresql://")]
    NoSuchDatabaseKind,
    #[error(
        "the database's URL cannot be read; it looks like \
         postgres://user:password@host:5432/database, with special characters percent-encoded"
    )]
    BadUrl(#[source] sqlx::Error),
    #[error(
        "the database at {address} cannot be reached: see whether PostgreSQL runs there, and whether \
         this machine may connect to it"
    )]
    Unreachable {
        address: String,
        #[source]
        source: sqlx::Error,
    },
    #[error(
        "the database at {address} does not let user {user} in: check the user and the password in \
         the URL, and pg_hba.conf on the server"
    )]
    NotAdmitted {
        address: String,
        user: String,
        #[source]
        source: sqlx::Error,
    },
    #[error("there is no database {name} at {address}: make it there first, with createdb {name}")]
    NoDatabase { address: String, name: String },
    #[error(
        "the database was written by a newer version of this program: it has migration {found}, and \
         this program knows those up to {known}; use the newer program, or a backup from before"
    )]
    Newer { found: i64, known: i64 },
    #[error(
        "another server is still bringing the database up to date: start this one again when it is \
         done; should none be, see who holds an advisory lock (pg_locks)"
    )]
    MigrationUnderWay,
    #[error("the database could not be brought up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error(
        "no connection to the database could be had in time: it cannot be reached, or all \
         connections are busy"
    )]
    NoConnection,
    #[error(
        "the database is PostgreSQL, which is not copied here: use pg_dump, while no server runs"
    )]
    NotAFile,
    /// Perhaps it was written.
    #[error("the database gave no answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("the database refused a statement")]
    Database(#[source] sqlx::Error),
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

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolTimedOut => Self::NoConnection,
            error => Self::Database(error),
        }
    }
}

impl Error {
    /// It was written all the same: whoever reads finds it.
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Unsynced(_))
    }

    /// Nothing was written because there is no room.
    pub fn is_disk_full(&self) -> bool {
        const SQLITE_FULL: &str = "13";
        const POSTGRES_DISK_FULL: &str = "53100";
        match self {
            Self::File { source, .. } | Self::Unsynced(source) => {
                source.kind() == io::ErrorKind::StorageFull
            }
            error => error.has_code(&[SQLITE_FULL, POSTGRES_DISK_FULL]),
        }
    }

    /// Those of SQLite are short numbers, those of PostgreSQL have five characters.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        Self::code_of(error).is_some_and(|code| codes.contains(&&*code))
    }

    pub(crate) fn code_of(error: &sqlx::Error) -> Option<Cow<'_, str>> {
        error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code)
    }
}
