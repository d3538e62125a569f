//! The server as clients see it, with real kernels behind it.
//!
//! Tests whose kernel is not installed say so and pass: `SOULBOX_TEST_PYTHON` names a folder with a
//! `python3` that has ipykernel.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod bash;
mod harness;
mod java;
mod javascript;
mod preload;
mod protocol;
mod python;
