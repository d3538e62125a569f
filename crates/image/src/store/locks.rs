//! Locks by name.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::digest::Digest;

type Lock = tokio::sync::Mutex<()>;

#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Those that somebody holds or waits for.
    known: Mutex<HashMap<Digest, Weak<Lock>>>,
}

impl Locks {
    pub(crate) async fn lock(&self, digest: &Digest) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = self.known.lock();
            known.retain(|_, lock| lock.strong_count() > 0);
            let found = known.get(digest).and_then(Weak::upgrade);
            found.unwrap_or_else(|| {
                let lock = Arc::new(Lock::new(()));
                known.insert(digest.clone(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }
}
