//! Client of envd, for the host.
//!
//! Code inside the sandbox may replace envd or make it misbehave. Every length, count and wait is
//! therefore bounded here, and every answer is treated as hostile input.
//!
//! # Layout
//! - `client`: [`EnvdClient`], the handle to one sandbox's envd, and `/init`
//! - `run`: a command until it ends; `process`: one that stays
//! - `copy`: files in; `tar_stream`: files out
//! - `dial`: how the sandbox is reached; `exchange`: one HTTP exchange over one connection
//! - `events`: the stream of a process, as E2B's protocol has it
//! - `command`, `error`: the types that callers see

mod client;
mod command;
mod copy;
mod dial;
mod error;
mod events;
mod exchange;
mod process;
mod run;
mod tar_stream;

pub use client::{EnvdClient, InitUpdate};
pub use command::{CommandSpec, OutputStream, ProcessExit};
pub use copy::CopyRequest;
pub use dial::{Dial, NodeDial, RuntimeDial};
pub use error::{Error, Result};
pub use process::RemoteProcess;
pub use tar_stream::TarStream;
