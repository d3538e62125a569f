//! One layer: from an untrusted compressed tar to a directory that overlayfs can stack.
//!
//! # Layout
//! - `decompress`: gzip, zstd or nothing, by the first bytes
//! - `meter`: counts, bounds and hashes what comes out of it
//! - `tar_reader`, `pax`: read the tar, with bounded memory
//! - `name`: names that stay below the root
//! - `tree`: the directory in the making, touched only through descriptors
//! - `unpack`: one entry after the other, whiteouts included

mod decompress;
mod error;
mod meter;
mod name;
mod pax;
pub(crate) mod tar_reader;
mod tree;
mod unpack;

pub(crate) use decompress::decompress;
pub use error::LayerError;
pub(crate) use meter::{Bounds, Meter};
pub(crate) use tree::is_opaque;
pub(crate) use unpack::{Unpacked, measure, unpack};
