//! The messages of E2B's `process` and `filesystem` services, written by hand.

pub(crate) mod filesystem;
pub(crate) mod json;
pub(crate) mod process;
