//! Unpacks an archive into a named layer.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, FileExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{ImageStore, Inner};
use crate::{
    Error, Result,
    digest::Digest,
    error::{At, blocking},
    layer::{self, LayerError, Unpacked},
    progress::ProgressCounter,
    registry::check,
};

/// A part of a file: a compressed or plain tar.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Counts what was read.
    pub(crate) counter: Option<Arc<ProgressCounter>>,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.size)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        self.size -= count as u64;
        if let Some(counter) = &self.counter {
            counter.advance(count as u64);
        }
        Ok(count)
    }
}

/// Ends the work of another thread when its asker is gone.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl ImageStore {
    /// Unpacks a layer and names it by its content, which must be the expected one. Already here,
    /// it is only read and checked.
    pub(crate) async fn install(&self, input: Input, expected: Option<Digest>) -> Result<Digest> {
        let store = self.clone();
        let give_up = CancelOnDrop::default();
        let flag = give_up.flag();
        blocking(move || store.inner.install(input, expected.as_ref(), &flag)).await
    }
}

impl Inner {
    fn install(
        &self,
        input: Input,
        expected: Option<&Digest>,
        give_up: &Arc<AtomicBool>,
    ) -> Result<Digest> {
        let compressed = input.size;
        let named = |source: LayerError| Error::Layer {
            layer: expected.map_or("of the archive", Digest::short).to_owned(),
            source,
        };
        let matches = |actual: &Digest| match expected {
            Some(expected) => check("the layer's content", expected, actual),
            None => Ok(()),
        };
        if expected.is_some_and(|expected| self.layer(expected).is_dir()) {
            let measured = layer::measure(input, compressed, self.bounds(), give_up);
            let (actual, _) = measured.map_err(named)?;
            matches(&actual)?;
            return Ok(actual);
        }
        let temporary = self.temporary();
        let building = tempfile::Builder::new()
            .prefix("layer-")
            .tempdir_in(&temporary)
            .at("make a folder in", &temporary)?;
        // The image decides over the mode of its root; what is around it must stay closed.
        let root = building.path().join("root");
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&root)
            .at("make", &root)?;
        let unpacked = layer::unpack(input, compressed, &root, self.bounds(), give_up);
        let Unpacked {
            diff_id,
            bytes,
            devices_left_out,
            implied,
        } = unpacked.map_err(named)?;
        matches(&diff_id)?;
        if give_up.load(Ordering::Relaxed) {
            return Err(Error::GivenUp);
        }
        self.note_implied(&diff_id, &implied)?;
        self.name(&root, &diff_id)?;
        tracing::debug!(layer = %diff_id, bytes, devices_left_out, "layer unpacked");
        Ok(diff_id)
    }

    pub(super) fn name(&self, root: &Path, digest: &Digest) -> Result<()> {
        let done = self.layer(digest);
        // A crash of the machine must not leave a complete-looking tree of empty files.
        File::open(root)
            .and_then(|root| Ok(rustix::fs::syncfs(root)?))
            .at("write out", root)?;
        match std::fs::rename(root, &done) {
            // Somebody else was first.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
                ) => {}
            other => other.at("name", &done)?,
        }
        let folder = self.dir.join("layers");
        File::open(&folder)
            .and_then(|folder| folder.sync_all())
            .at("write out", &folder)?;
        self.touch(digest)
    }
}
