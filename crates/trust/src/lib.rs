//! What a machine needs so that `https://8000-<id>.<domain>` opens on it: the server's local CA in the
//! system's store, and a resolver that knows the names. Planned, shown, done, recorded, undone.
//!
//! Everything here blocks.
//!
//! # Layout
//! - [`Names`]: what a server says about its names, for whoever sets a machine up
//! - `store`, `resolver`: what this machine has for certificates and for names, and the change that each needs
//! - [`Plan`]: the changes, in words and in bytes
//! - [`Record`]: what was done, kept so that exactly that is undone
//! - `lookup`: whether names are found, by the system's resolver and by one server
//! - [`macos_script`]: the same for a Mac, on which this program does not run
//! - [`fingerprint`]: a certificate's, as people compare it

mod fingerprint;
mod ini;
mod lookup;
mod macos;
mod names;
mod plan;
mod record;
mod resolver;
mod run;
mod store;

pub use fingerprint::fingerprint;
pub use lookup::{asks, resolves};
pub use macos::macos_script;
pub use names::{NAMES_FILE, Names};
pub use plan::{Change, Command, Only, Part, Plan, Wanted};
pub use record::{Record, Undone};
pub use run::run;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", .path.display())]
    File {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{problem}")]
    Impossible { problem: String, hint: String },
    #[error("`{command}` failed: {problem}")]
    Command { command: String, problem: String },
}

impl Error {
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Impossible { hint, .. } => Some(hint),
            Self::File { .. } | Self::Command { .. } => None,
        }
    }

    pub(crate) fn impossible(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Impossible {
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) trait At<T> {
    fn at(self, path: &std::path::Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })
    }
}
