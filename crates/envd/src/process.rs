//! Processes that clients start.
//!
//! - [`spawn`]: fork and exec
//! - [`command`]: what to run, prepared so that the forked child allocates nothing
//! - [`disposition`]: what signals do to envd and to its children
//! - [`group`]: a process group that nobody leads, for commands without a terminal
//! - [`ring`]: recent output and the places of its readers
//! - [`running`]: one process: its output, input and end
//! - [`pump`]: moves output from the pipes into the ring
//! - [`table`]: all of them, also those that ended a moment ago
//! - [`warm_up`]: runs a program once, ahead of the user's first start
//! - [`shortage`]: who died for lack of memory
//! - [`reaper`]: collects every dead child, as pid 1 must

pub(crate) mod command;
pub(crate) mod disposition;
mod group;
mod pump;
pub(crate) mod reaper;
mod ring;
mod running;
mod shortage;
mod spawn;
mod start;
mod table;
mod warm_up;

pub(crate) use ring::Next;
pub(crate) use running::{InputError, Process, passed_on};
pub(crate) use start::{StartError, size, start};
pub(crate) use table::Table;
pub(crate) use warm_up::warm_up;
