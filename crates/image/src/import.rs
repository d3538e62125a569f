//! From a file to an image: a plain root file system, or what `docker save`, `buildah push
//! oci-archive:` and their like write.

mod archive;
mod archived_image;

use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use crate::{
    Error, Image, ImageStore, Progress, Result,
    error::{At, blocking},
    image::Settings,
    layer::{LayerError, Meter, decompress},
    manifest::malformed,
    progress::ProgressCounter,
    store::{CancelOnDrop, Input, ResolvedReference},
};

use self::{archive::Archive, archived_image::ArchivedImage};

impl ImageStore {
    /// Makes an image of a tar, plain or compressed.
    pub async fn import_tar(&self, path: &Path, progress: &dyn Progress) -> Result<Image> {
        let counter = Arc::new(ProgressCounter::default());
        let work = Box::pin(self.import(path.to_owned(), &counter, progress));
        self.in_time(&counter, progress, work).await
    }

    async fn import(
        &self,
        path: PathBuf,
        counter: &Arc<ProgressCounter>,
        progress: &dyn Progress,
    ) -> Result<Image> {
        let store = self.clone();
        let shown = path.display().to_string();
        progress.line(&format!("Reading {shown}"));
        let give_up = CancelOnDrop::default();
        let flag = give_up.flag();
        let (file, size, archived_image) = blocking(move || store.read(&path, &flag)).await?;
        let input = |offset: u64, size: u64| {
            counter.expect(size);
            Input {
                file: Arc::clone(&file),
                offset,
                size,
                counter: Some(Arc::clone(counter)),
            }
        };
        let (digest, layers, settings) = match archived_image {
            None => {
                let layer = self.install(input(0, size), None).await?;
                (layer.to_string(), vec![layer], Settings::default())
            }
            Some(archived_image) => {
                let _pinned = self.inner.pins.pin(&archived_image.diff_ids);
                let mut layers = Vec::new();
                for (part, diff_id) in
                    std::iter::zip(&archived_image.layers, archived_image.diff_ids)
                {
                    let input = input(part.offset, part.size);
                    layers.push(self.install(input, Some(diff_id)).await?);
                    progress.line(&format!(
                        "Layer {} of {}",
                        layers.len(),
                        archived_image.layers.len()
                    ));
                }
                (
                    archived_image.digest.to_string(),
                    layers,
                    archived_image.settings,
                )
            }
        };
        let found = ResolvedReference {
            reference: shown,
            digest,
            layers,
            settings,
        };
        let _pinned = self.inner.pins.pin(&found.layers);
        let store = self.clone();
        let image = blocking(move || store.inner.assemble(&found)).await?;
        image.ok_or_else(|| malformed("the image", "a layer was removed while it was imported"))
    }

    /// The archive, without its compression if there are archives in it.
    fn read(
        &self,
        path: &Path,
        give_up: &Arc<AtomicBool>,
    ) -> Result<(Arc<File>, u64, Option<ArchivedImage>)> {
        let file = File::open(path).at("open", path)?;
        let metadata = file.metadata().at("look at", path)?;
        if !metadata.is_file() {
            return Err(malformed(&path.display().to_string(), "it is not a file"));
        }
        let file = Arc::new(file);
        let size = metadata.len();
        let input = Input {
            file: Arc::clone(&file),
            offset: 0,
            size,
            counter: None,
        };
        let listed = |source: LayerError| Error::Layer {
            layer: "of the archive".to_owned(),
            source,
        };
        let opened = decompress(BufReader::with_capacity(128 << 10, input)).map_err(listed)?;
        let mut meter = Meter::new(opened, size, self.inner.bounds(), Arc::clone(give_up));
        let archive = Archive::list(&mut meter, self.inner.bounds().entries).map_err(listed)?;
        if !archive.may_be_bundle() {
            return Ok((file, size, None));
        }
        let (plain, plain_size) = self.expand(&file, size, give_up)?;
        let archived_image = ArchivedImage::read(&archive, &plain)?;
        match archived_image {
            Some(archived_image) => Ok((plain, plain_size, Some(archived_image))),
            None => Ok((file, size, None)),
        }
    }

    /// A file in which offsets are those of the tar.
    fn expand(
        &self,
        file: &Arc<File>,
        size: u64,
        give_up: &Arc<AtomicBool>,
    ) -> Result<(Arc<File>, u64)> {
        let input = Input {
            file: Arc::clone(file),
            offset: 0,
            size,
            counter: None,
        };
        let failed = |error: &io::Error| Error::Layer {
            layer: "of the archive".to_owned(),
            source: LayerError::reading(error),
        };
        let temporary = self.inner.temporary();
        let mut plain = tempfile::tempfile_in(&temporary).at("make a file in", &temporary)?;
        let opened = decompress(BufReader::with_capacity(128 << 10, input));
        let opened = opened.map_err(|source| Error::Layer {
            layer: "of the archive".to_owned(),
            source,
        })?;
        let mut meter = Meter::new(opened, size, self.inner.bounds(), Arc::clone(give_up));
        let mut buffer = vec![0; 1 << 20];
        let mut total = 0;
        let mut room = self.inner.room()?;
        loop {
            let count = meter.read(&mut buffer).map_err(|error| failed(&error))?;
            if count == 0 {
                return Ok((Arc::new(plain), total));
            }
            total += count as u64;
            room = room.checked_sub(count as u64).ok_or(Error::NoSpace {
                needed: total,
                free: 0,
            })?;
            plain
                .write_all(buffer.get(..count).unwrap_or_default())
                .at("write in", &temporary)?;
        }
    }
}
