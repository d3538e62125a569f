//! The messages of E2B's `process` service, which envd shares with its clients, and of its
//! `filesystem` service.

pub(crate) mod filesystem;

pub(crate) use soulbox_envd_protocol::{Event, OutputStream, json, process};
