use std::io;

use super::meter::Stop;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("it is compressed with {0}, which is not supported: use gzip, zstd or plain tar")]
    Compression(&'static str),
    #[error("it unpacks to more than {0} bytes")]
    TooLarge(u64),
    #[error("it unpacks to more than {0} times its size: it looks like a decompression bomb")]
    Bomb(u64),
    #[error("it has more than {0} entries")]
    TooMany(u64),
    #[error("the entry {entry:?} leads out of the image: {reason}")]
    Escape { entry: String, reason: &'static str },
    #[error("the entry {entry:?} cannot be unpacked: {reason}")]
    Entry { entry: String, reason: String },
    #[error(
        "the entry {entry:?} belongs to the id {id}, but sandboxes only have ids up to {highest}: \
         build the image with smaller ids"
    )]
    Owner {
        entry: String,
        id: u64,
        highest: u64,
    },
    #[error("the disk has no room for it (a reserve is kept free)")]
    NoSpace,
    #[error("could not write {entry:?}: {cause}")]
    Write { entry: String, cause: io::Error },
    #[error("unpacking was given up")]
    GivenUp,
}

impl LayerError {
    /// Of an error that came out of the reading side.
    pub(crate) fn reading(error: &io::Error) -> Self {
        if let Some(stop) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return match stop {
                Stop::TooLarge(limit) => Self::TooLarge(*limit),
                Stop::Bomb(ratio) => Self::Bomb(*ratio),
                Stop::GivenUp => Self::GivenUp,
            };
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends too early".to_owned()),
            _ => Self::Damaged(error.to_string()),
        }
    }
}
