//! Pulls an image by its reference.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    Credentials, Error, Image, ImageStore, Progress, Result,
    digest::Digest,
    error::blocking,
    manifest::{Descriptor, configuration, malformed},
    progress::ProgressCounter,
    reference::Reference,
    registry::Session,
    store::{Input, ResolvedReference},
};

/// One layer of an image that is being pulled.
struct LayerToPull {
    descriptor: Descriptor,
    diff_id: Digest,
}

impl ImageStore {
    /// The image that a reference means. What is known and whole is given without asking anybody,
    /// unless `refresh`. Given up in the middle, it leaves nothing behind.
    pub async fn pull(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        refresh: bool,
        progress: &dyn Progress,
    ) -> Result<Image> {
        let reference = Reference::parse(reference)?;
        if !refresh && let Some(image) = self.known(&reference, credentials).await? {
            progress.line(&format!("{reference} is already here"));
            return Ok(image);
        }
        let counter = Arc::new(ProgressCounter::default());
        let work = Box::pin(self.fetch(&reference, credentials, &counter, progress));
        self.in_time(&counter, progress, work).await
    }

    /// Reports its progress, and ends it when it takes too long in all.
    pub(crate) async fn in_time(
        &self,
        counter: &ProgressCounter,
        progress: &dyn Progress,
        work: impl Future<Output = Result<Image>>,
    ) -> Result<Image> {
        let total = self.inner.config.timeouts.total;
        let bounded = tokio::time::timeout(total, work);
        counter.report(progress, bounded).await.unwrap_or_else(|_| {
            let seconds = total.as_secs();
            Err(Error::Late { seconds })
        })
    }

    async fn known(
        &self,
        reference: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<Option<Image>> {
        let key = self.inner.references.key(reference, credentials);
        let store = self.clone();
        blocking(move || {
            let Some(found) = store.inner.references.get(&key) else {
                return Ok(None);
            };
            let _pinned = store.inner.pins.pin(&found.layers);
            store.inner.assemble(&found)
        })
        .await
    }

    async fn fetch(
        &self,
        reference: &Reference,
        credentials: Option<&Credentials>,
        counter: &Arc<ProgressCounter>,
        progress: &dyn Progress,
    ) -> Result<Image> {
        progress.line(&format!("Pulling {reference}"));
        let inner = &self.inner;
        let (session, manifest, digest) = inner.registries.manifest(reference, credentials).await?;
        let config = session.config(&manifest.config).await?;
        let (settings, diff_ids) = configuration(&config, manifest.layers.len())?;
        let _pinned = inner.pins.pin(&diff_ids);
        let wanted: Vec<LayerToPull> = std::iter::zip(manifest.layers, diff_ids.iter().cloned())
            .map(|(descriptor, diff_id)| LayerToPull {
                descriptor,
                diff_id,
            })
            .collect();
        for layer in &wanted {
            self.check_size(&layer.descriptor)?;
            counter.expect(layer.descriptor.size);
        }
        let layers = wanted
            .iter()
            .map(|layer| self.layer(&session, reference, layer, counter, progress));
        let () = stream::iter(layers.collect::<Vec<_>>())
            .buffer_unordered(inner.config.parallel.max(1))
            .try_collect()
            .await?;
        let found = ResolvedReference {
            reference: reference.to_string(),
            digest: digest.to_string(),
            layers: diff_ids,
            settings,
        };
        let key = inner.references.key(reference, credentials);
        let store = self.clone();
        let image = blocking(move || {
            let image = store.inner.assemble(&found)?;
            store.inner.references.put(&key, &found)?;
            Ok(image)
        })
        .await?;
        progress.line(&format!("Pulled {digest} from {}", session.host()));
        // Pinned layers do not go away.
        image.ok_or_else(|| malformed("the image", "a layer was removed while it was pulled"))
    }

    fn check_size(&self, descriptor: &Descriptor) -> Result<()> {
        if descriptor.media_type.contains("encrypted") {
            return Err(malformed("a layer", "it is encrypted"));
        }
        let limit = self.inner.config.max_layer_bytes;
        if descriptor.size > limit {
            return Err(Error::TooLarge {
                what: format!("the layer {}", descriptor.digest.short()),
                limit,
            });
        }
        Ok(())
    }

    /// Sees to it that one layer is here. Of several who want the same, one does the work.
    async fn layer(
        &self,
        session: &Session,
        reference: &Reference,
        wanted: &LayerToPull,
        counter: &Arc<ProgressCounter>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let inner = &self.inner;
        let LayerToPull {
            descriptor,
            diff_id,
        } = wanted;
        let _mine = inner.locks.lock(diff_id).await;
        let _worker = inner.workers.acquire().await.map_err(|_| Error::GivenUp)?;
        let size = descriptor.size;
        if inner.is_proven(diff_id, &reference.registry, &descriptor.digest) {
            counter.advance(size);
            return Ok(());
        }
        let free = inner.room()?;
        if free < size {
            return Err(Error::NoSpace { needed: size, free });
        }
        let temporary = inner.temporary();
        let min_free = inner.config.min_free_disk;
        let blob = session
            .blob(descriptor, &temporary, min_free, counter)
            .await?;
        let input = Input {
            file: Arc::new(blob.file),
            offset: 0,
            size: blob.size,
            counter: None,
        };
        self.install(input, Some(diff_id.clone())).await?;
        let store = self.clone();
        let (layer, blob) = (diff_id.clone(), descriptor.digest.clone());
        let registry = reference.registry.clone();
        blocking(move || store.inner.prove(&layer, &registry, &blob)).await?;
        progress.line(&format!("Layer {} is here", diff_id.short()));
        Ok(())
    }
}
