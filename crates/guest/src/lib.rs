//! Talks to envd inside a sandbox, from the host.
//!
//! Whoever is inside may answer in envd's place or make it misbehave, so every length, count and
//! wait is bounded here, and nothing that comes back is believed further than it must be.
//!
//! # Layout
//! - `guest`: [`Guest`], the handle to one sandbox's envd, and `/init`
//! - `run`: a command until it ends; `process`: one that stays
//! - `copy`: files in; `tree`: files out
//! - `dial`: how the sandbox is reached; `exchange`: one HTTP exchange over one connection
//! - `events`, `frames`: the stream of a process, as E2B's protocol has it
//! - `command`, `error`: the types that callers see

mod command;
mod copy;
mod dial;
mod error;
mod events;
mod exchange;
mod frames;
mod guest;
mod process;
mod run;
mod tree;

pub use command::{GuestCommand, GuestExit, OutputStream};
pub use copy::CopyIn;
pub use dial::{Dial, NodeDial, RuntimeDial};
pub use error::{Error, Result};
pub use guest::{Guest, InitUpdate};
pub use process::GuestProcess;
pub use tree::Tree;
