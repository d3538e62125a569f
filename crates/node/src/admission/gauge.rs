use std::fmt;

use super::Resource;
use crate::KernelMemory;

/// What is used of something, and how much of it sandboxes may come to use, reserves taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// One that the machine has a number of.
    pub resource: Resource,
    /// For people: `of the machine`.
    pub whose: &'static str,
    pub used: u64,
    pub bound: u64,
}

/// One look at the machine. What cannot be found out is not in it, and does not lack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    pub levels: Vec<Level>,
}

/// Looks at the machine. May block for some milliseconds.
pub trait Gauge: fmt::Debug + Send + Sync {
    fn read(&self) -> Reading;

    /// What of the machine's memory the kernel uses for itself. `None`: that cannot be found out, and
    /// nobody is asked for it.
    fn kernel_memory(&self) -> Option<KernelMemory> {
        None
    }
}
