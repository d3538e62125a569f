//! Which folders running builds use: garbage collection leaves them alone.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::Mutex;

#[derive(Debug, Clone, Default)]
pub(crate) struct Leases(Arc<Mutex<HashMap<PathBuf, usize>>>);

/// Holds paths until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: Leases,
    paths: Vec<PathBuf>,
}

impl Leases {
    pub(crate) fn hold(&self, paths: impl IntoIterator<Item = PathBuf>) -> Arc<Lease> {
        let paths: Vec<_> = paths.into_iter().collect();
        let mut held = self.0.lock();
        for path in &paths {
            *held.entry(path.clone()).or_default() += 1;
        }
        drop(held);
        Arc::new(Lease {
            leases: self.clone(),
            paths,
        })
    }

    pub(crate) fn held(&self) -> HashSet<PathBuf> {
        self.0.lock().keys().cloned().collect()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.leases.0.lock();
        for path in &self.paths {
            if let Some(count) = held.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    held.remove(path);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_held_until_the_last_lease_is_gone() {
        let leases = Leases::default();
        let first = leases.hold(["/a".into(), "/b".into()]);
        let second = leases.hold(["/a".into()]);
        drop(first);
        assert_eq!(leases.held(), ["/a".into()].into());
        drop(second);
        assert!(leases.held().is_empty());
    }
}
