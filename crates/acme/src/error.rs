use std::{io, path::PathBuf, time::Duration};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the ACME server")]
    Acme(#[from] instant_acme::Error),
    #[error("the ACME server did not find the names to be ours: {0}")]
    Refused(String),
    #[error("the ACME server has no challenge {kind} for {name}")]
    NoChallenge { name: String, kind: String },
    #[error("the certificate is for other names than those that were asked for: {names}")]
    OtherNames { names: String },
    #[error("the DNS hook {} {action} failed: {problem}", .program.display())]
    Hook {
        program: PathBuf,
        action: &'static str,
        problem: String,
    },
    #[error("it took longer than {} s", .0.as_secs())]
    Late(Duration),
    #[error("{}", .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    #[error("the request for the certificate could not be made")]
    Request(#[from] rcgen::Error),
}
