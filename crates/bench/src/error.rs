use std::{io, path::PathBuf, time::Duration};

use soulbox_client::config::ConfigError;

/// Why nothing can be measured at all. What concerns one contender or one suite is in the report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot make the scratch folder {}", .path.display())]
    Scratch {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// After `--`, for the servers.
    #[error("the bench sets {option} of its servers itself: {why}")]
    Chosen {
        option: &'static str,
        why: &'static str,
    },
    #[error("cannot start {}", .program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// With what it said last.
    #[error("the server that was started for the bench ended: {said}")]
    Ended { said: String },
    #[error("the server that was started for the bench was not ready within {} s: {said}", limit.as_secs())]
    Late { limit: Duration, said: String },
    #[error("the key of the server that was started for the bench cannot be read")]
    Config(#[from] ConfigError),
    /// The running server that was to be measured.
    #[error("the server does not answer")]
    Unreachable(#[source] soulbox_client::Error),
}
