//! A store of its own for each test.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use soulbox_image::{ImageConfig, ImageStore, Progress, Timeouts};
use tempfile::TempDir;

pub(crate) struct TestStore {
    pub(crate) store: ImageStore,
    pub(crate) dir: TempDir,
}

/// Trusts these registries, and waits for nobody for long.
pub(crate) fn config(allow: &[String]) -> ImageConfig {
    ImageConfig {
        allow: allow.to_vec(),
        min_free_disk: 0,
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(5),
            total: Duration::from_mins(1),
            retry: Duration::from_millis(5),
            longest_wait: Duration::from_secs(2),
        },
        ..ImageConfig::default()
    }
}

impl TestStore {
    pub(crate) fn trusting(hosts: &[String]) -> Self {
        Self::with(config(hosts))
    }

    pub(crate) fn with(config: ImageConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path().join("images"), config).unwrap();
        Self { store, dir }
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    /// The error of a pull that must fail and leave nothing behind.
    pub(crate) async fn refused(&self, reference: &str) -> String {
        let error = self.store.pull(reference, None, false, &()).await;
        let error = error.unwrap_err().to_string();
        self.assert_empty();
        error
    }

    pub(crate) fn assert_empty(&self) {
        self.assert_no_leftovers();
        for folder in ["layers", "manifests"] {
            assert_eq!(list(&self.images().join(folder)), [""; 0], "{folder}");
        }
    }

    /// Nothing unfinished, and nothing next to the store.
    pub(crate) fn assert_no_leftovers(&self) {
        assert_eq!(list(&self.images().join("tmp")), [""; 0]);
        assert_eq!(list(self.dir.path()), ["images"]);
        let expected = ["key", "layers", "manifests", "sources", "tmp"];
        assert_eq!(list(&self.images()), expected);
    }

    /// Work that was given up ends on another thread.
    pub(crate) async fn wait_for_no_leftovers(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !list(&self.images().join("tmp")).is_empty() {
            assert!(Instant::now() < deadline, "leftovers stay");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) fn list(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) lines: Mutex<Vec<String>>,
    pub(crate) last: Mutex<(u64, u64)>,
}

impl Progress for Log {
    fn line(&self, text: &str) {
        self.lines.lock().unwrap().push(text.to_owned());
    }

    fn bytes(&self, done: u64, total: u64) {
        *self.last.lock().unwrap() = (done, total);
    }
}
