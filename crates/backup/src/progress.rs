//! Who watches, and may stop it.

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    pub done: u64,
    /// An estimate.
    pub total: u64,
    /// What is being done now, for people.
    pub what: &'a str,
}

pub trait Watcher {
    /// Called now and then. `false`: stop.
    fn goes_on(&self, progress: Progress<'_>) -> bool;
}

impl<F: Fn(Progress<'_>) -> bool> Watcher for F {
    fn goes_on(&self, progress: Progress<'_>) -> bool {
        self(progress)
    }
}
