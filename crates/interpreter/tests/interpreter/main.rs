//! The server as clients see it, with real kernels behind it.
//!
//! Tests whose kernel is not installed say so and pass: `SOULBOX_TEST_PYTHON` names a folder with a
//! `python3` that has ipykernel.

mod bash;
mod batch;
mod harness;
mod javascript;
mod protocol;
mod python;
