//! The Connect protocol, version 1, over HTTP/1.1: the part of it that E2B's `envd` speaks.
//!
//! - [`codec`]: JSON and binary bodies
//! - [`frame`]: envelopes of streams, in and out
//! - [`error`]: codes, their HTTP status, their JSON
//! - [`serve`]: unary, server-streaming and client-streaming calls around a handler

pub(crate) mod codec;
pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod serve;

pub(crate) use error::{Code, ConnectError};
pub(crate) use serve::{Call, Sink, client_stream, server_stream, unary};
