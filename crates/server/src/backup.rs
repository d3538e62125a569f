//! Backups of a data folder: `docs/backup.md` says why it is done so.
//!
//! # Layout
//! - `take`: what is copied, and in which order
//! - `pins`: what is to be copied stays, whoever deletes it meanwhile
//! - `live`: from a server that runs; `stopped`: from the folder of one that does not
//! - `operator`: the socket in the data folder by which the command line reaches the server
//! - `client`: the command line's side
//! - `last`: when the last one was

mod client;
mod last;
mod live;
mod operator;
mod pins;
mod stopped;
mod take;

pub use client::{BackupDone, back_up, restore, verify_backup};
pub(crate) use last::{LastBackup, last_backup};
pub(crate) use live::LiveSource;
pub(crate) use operator::Operator;
pub(crate) use pins::remove_left as remove_left_pins;
