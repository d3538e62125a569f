//! The system calls that no safe crate wraps, each in the smallest module that needs it.
