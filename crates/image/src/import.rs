//! From a file to an image: a plain root file system, or what `docker save`, `buildah push
//! oci-archive:` and their like write.

mod archive;
mod bundle;

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
    progress::Tally,
    store::{GiveUp, Input, Remembered},
};

use self::{archive::Archive, bundle::Bundle};

impl ImageStore {
    /// Makes an image of a tar, plain or compressed.
    pub async fn import_tar(&self, path: &Path, progress: &dyn Progress) -> Result<Image> {
        let tally = Arc::new(Tally::default());
        let work = self.import(path.to_owned(), &tally, progress);
        let total = self.inner.config.timeouts.total;
        let bounded = tokio::time::timeout(total, work);
        match tally.report(progress, bounded).await {
            Ok(done) => done,
            Err(_) => Err(Error::Late {
                seconds: total.as_secs(),
            }),
        }
    }

    async fn import(
        &self,
        path: PathBuf,
        tally: &Arc<Tally>,
        progress: &dyn Progress,
    ) -> Result<Image> {
        let store = self.clone();
        let shown = path.display().to_string();
        progress.line(&format!("Reading {shown}"));
        let give_up = GiveUp::default();
        let flag = give_up.flag();
        let (file, size, bundle) = blocking(move || store.read(&path, &flag)).await?;
        let input = |offset: u64, size: u64| {
            tally.expect(size);
            Input {
                file: Arc::clone(&file),
                offset,
                size,
                tally: Some(Arc::clone(tally)),
            }
        };
        let (digest, layers, settings) = match bundle {
            None => {
                let layer = self.install(input(0, size), None).await?;
                (layer.to_string(), vec![layer], Settings::default())
            }
            Some(bundle) => {
                let _pinned = self.inner.pins.pin(&bundle.diff_ids);
                let mut layers = Vec::new();
                for (part, diff_id) in std::iter::zip(&bundle.layers, bundle.diff_ids) {
                    let input = input(part.offset, part.size);
                    layers.push(self.install(input, Some(diff_id)).await?);
                    progress.line(&format!(
                        "Layer {} of {}",
                        layers.len(),
                        bundle.layers.len()
                    ));
                }
                (bundle.digest.to_string(), layers, bundle.settings)
            }
        };
        let found = Remembered {
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
    ) -> Result<(Arc<File>, u64, Option<Bundle>)> {
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
            tally: None,
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
        let bundle = Bundle::read(&archive, &plain)?;
        match bundle {
            Some(bundle) => Ok((plain, plain_size, Some(bundle))),
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
            tally: None,
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
