//! An SSH server for one sandbox, spoken on a pipe: `ssh`, `scp`, `sftp`, `rsync` and editors work with
//! any template, without a server inside.
//!
//! Sessions are processes that envd starts; the subsystem `sftp` is one that it has built in;
//! connections through the session (`ssh -L`) are ports of the sandbox. Nobody is asked for a password:
//! the pipe belongs to the user, and the API key was accepted before.
//!
//! # Layout
//! - [`serve`]: one connection
//! - `connection`: what the client asks for, channel by channel
//! - `session`: a process on a channel; `account`: its shell
//! - `port`: a port on a channel
//! - `flow`: how much may wait between the two sides
//! - [`HostKey`]: made once for a user

mod account;
mod connection;
mod flow;
mod host_key;
mod port;
mod serve;
mod session;

pub use host_key::{HostKey, HostKeyError};
pub use serve::{Sandbox, is_end, serve};
