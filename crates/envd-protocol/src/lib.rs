//! What envd and its clients say to each other about processes: E2B's protocol on Connect's
//! streams. No I/O, so that envd, the host's client and the command line's client share it.
//!
//! # Layout
//! - [`frames`]: Connect's stream framing
//! - [`json`]: the corners of proto3's JSON mapping
//! - [`process`]: the messages of `process.Process`
//! - `event`: [`Event`], what a process's stream says, from and to its message
//! - `end`: how a process ended, in E2B's words and in a shell's terms
//! - `call`: the headers of a call, and the errors in its answer

mod call;
mod end;
mod event;
pub mod frames;
pub mod json;
pub mod process;

pub use call::{
    Encoding, EndOfStream, ErrorBody, KEEPALIVE_HEADER, REPLAY_HEADER, TIMEOUT_HEADER,
    call_headers, stream_headers,
};
pub use end::signal_name;
pub use event::{Event, OutputStream};
