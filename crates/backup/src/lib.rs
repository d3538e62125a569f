//! A backup of a data folder: a folder of its own, from which another server goes on.
//!
//! What belongs into one, and how a server that runs hands it out, is the server's to know; here is
//! how it is kept. `docs/backup.md` says why it is so. Everything here blocks.
//!
//! ```text
//! DIR/<time>/            one backup; it has this name only once it is whole
//! DIR/<time>.new/        one that is being written, or was cut short
//!   manifest.json        what is in it: every file with its checksum
//!   manifest.sum         the checksum of that
//!   …                    files as in the data folder; a layer's folder is one archive, `NAME.tar`
//! ```
//!
//! # Layout
//! - `manifest`: what is in a backup
//! - `place`: the backups in a folder, and the newest of them
//! - `writer`: writing one; `progress`: who watches, and may stop it
//! - `layer`: a folder as an archive, with all that an overlay needs of it
//! - `verify`, `restore`: bringing one back
//! - `space`: whether it fits

mod error;
mod layer;
mod manifest;
mod place;
mod progress;
mod restore;
mod space;
mod verify;
mod writer;

pub use error::{Error, Result};
pub use manifest::{CopiedSandbox, FORMAT, FileEntry, FileKind, LeftOut, Manifest};
pub use place::{Place, find};
pub use progress::{Progress, Watcher};
pub use restore::{UNFINISHED as UNFINISHED_RESTORE, restore};
pub use space::{bytes_on_disk, check_space};
pub use verify::verify;
pub use writer::Writer;
