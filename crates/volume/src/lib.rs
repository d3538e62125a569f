//! Volumes: folders that outlive sandboxes and are shared by them.
//!
//! Each volume is a sparse ext4 image, so that it has a size of its own, mounted in the server's
//! mount namespace while somebody uses it:
//!
//! ```text
//! DIR/volumes/<id>/image.ext4
//! DIR/volumes/<id>/disk            the mounted image
//! DIR/volumes/<id>/disk/files      what sandboxes and clients see
//! DIR/volumes/<id>/disk/staging    uploads and deletions under way, seen by nobody
//! DIR/volumes/<id>/mnt             `files` alone, to be mounted into sandboxes
//! ```
//!
//! Code in sandboxes writes into these folders while the server reads them: every name is resolved
//! by the kernel below the volume's root, no link leads out of it, and nothing is opened that is
//! not a plain file or a folder. Everything here blocks.
//!
//! # Layout
//! - [`Volumes`]: making, finding and deleting volumes
//! - `image`, `mount`: the file system of one
//! - [`Content`] with `resolve`, `list`, `make`, `write`, `remove`: what clients do with files

mod content;
mod disk_reserve;
mod entry;
mod error;
mod image;
mod mount;
mod path;
mod volumes;

pub use self::{
    content::{Changes, Content, MAX_DEPTH, Writer},
    entry::{Entry, Kind, Timestamp},
    error::{Error, Result},
    volumes::Volumes,
};
