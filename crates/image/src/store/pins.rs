//! Pins layers that a running pull needs.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use crate::digest::Digest;

#[derive(Debug, Default)]
pub(crate) struct Pins {
    counts: Mutex<HashMap<Digest, usize>>,
}

/// Holds its layers until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned<'a> {
    pins: &'a Pins,
    digests: Vec<Digest>,
}

impl Pins {
    /// Before looking whether they are here: then they stay.
    pub(crate) fn pin(&self, digests: &[Digest]) -> Pinned<'_> {
        let mut counts = self.counts.lock();
        for digest in digests {
            *counts.entry(digest.clone()).or_default() += 1;
        }
        Pinned {
            pins: self,
            digests: digests.to_vec(),
        }
    }

    /// While it is held, nobody pins anything.
    pub(super) fn hold(&self) -> PinsGuard<'_> {
        PinsGuard(self.counts.lock())
    }
}

pub(super) struct PinsGuard<'a>(MutexGuard<'a, HashMap<Digest, usize>>);

impl PinsGuard<'_> {
    pub(super) fn is_pinned(&self, digest: &Digest) -> bool {
        self.0.contains_key(digest)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut counts = self.pins.counts.lock();
        for digest in &self.digests {
            if let Some(count) = counts.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(digest);
                }
            }
        }
    }
}
