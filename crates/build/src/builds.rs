use std::{collections::HashSet, io, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use soulbox_template::Template;
use soulbox_types::TenantId;
use tokio_util::sync::CancellationToken;

use crate::{BuildDisk, BuildFailure, BuildLog, BuildRequest};

/// The bytes of an upload as they come in.
pub type Upload = BoxStream<'static, io::Result<Bytes>>;

#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("the upload is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    /// Nothing of it was kept; what others write to this disk must go on fitting.
    #[error(
        "the upload was refused: {why}; free space there, or let the operator do so, and try again"
    )]
    NoSpace { why: String },
    #[error("the upload was cut off")]
    Cut(#[source] io::Error),
    #[error("could not keep the uploaded files")]
    Io(#[source] io::Error),
}

/// What the control plane needs from a builder.
#[async_trait]
pub trait Builds: Send + Sync + std::fmt::Debug {
    /// Runs to the end, or until `cancel`: the failure is `build was cancelled` then. When it
    /// succeeds, the template is in [`soulbox_template::Templates`] for good. Safe to run again
    /// after a crash.
    async fn build(
        &self,
        request: BuildRequest,
        log: Arc<dyn BuildLog>,
        cancel: CancellationToken,
    ) -> Result<Arc<Template>, BuildFailure>;

    /// Whether the files of a COPY are here.
    async fn has_files(&self, tenant: &TenantId, hash: &str) -> bool;

    /// Keeps them under `hash` (64 hex digits, checked by the caller), replacing what was there;
    /// all or nothing.
    async fn receive_files(
        &self,
        tenant: &TenantId,
        hash: &str,
        upload: Upload,
    ) -> Result<(), FilesError>;

    /// Removes layers, cached steps and files that nothing refers to. `keep` are the builds that
    /// sandboxes and snapshots use; kept templates are kept anyway.
    async fn collect_garbage(&self, keep: Vec<Arc<Template>>);

    /// The same, however lately it was used: it can be made again. Uploads that a build may still
    /// start with stay.
    async fn prune(&self, keep: Vec<Arc<Template>>);

    /// What the builder's files take. `without`: builds that are to be taken for gone already.
    async fn disk_use(
        &self,
        without: HashSet<String>,
        keep: Vec<Arc<Template>>,
    ) -> io::Result<BuildDisk>;
}
