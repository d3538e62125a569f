use std::{io, time::Duration};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown language {0:?}: the languages are {known}", known = known())]
    UnknownLanguage(String),
    #[error(
        "{language} is not installed in this sandbox; it has {}", if installed.is_empty() { "none of the languages".to_owned() } else { installed.join(", ") }
    )]
    NotInstalled {
        language: &'static str,
        installed: Vec<&'static str>,
    },
    #[error("code and stdin are larger than {limit} bytes together: write a file and run that")]
    TooLarge { limit: usize },
    #[error(
        "the sandbox did not answer within {} s while {what}: what runs in it may use all of its \
         cpu, or have stopped envd; try again, or kill it", limit.as_secs()
    )]
    Mute { what: &'static str, limit: Duration },
    #[error("{0:?} cannot name a variable")]
    NotAName(String),
    #[error("the code could not be packed")]
    Archive(#[source] io::Error),
    #[error(transparent)]
    Sandbox(soulbox_envd_client::Error),
}

impl From<soulbox_envd_client::Error> for Error {
    fn from(error: soulbox_envd_client::Error) -> Self {
        match error {
            soulbox_envd_client::Error::TooSlow { what, limit } => Self::Mute { what, limit },
            error => Self::Sandbox(error),
        }
    }
}

fn known() -> String {
    let names: Vec<_> = crate::LANGUAGES.iter().map(|each| each.name).collect();
    names.join(", ")
}
