use std::{
    future::Future,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use soulbox_runtime::Node;
use soulbox_store::Store;
use soulbox_types::Chain;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    ControlConfig, Error, Result,
    building::{BuildScheduler, BuildStats, TemplateCatalog},
    catalogue::Catalogue,
    journal::Journal,
    keys::KeyRing,
    registry::Registry,
    snapshots::SnapshotCatalog,
    token::TokenMaker,
    vault::Vault,
    volumes::Claims,
    webhooks::Hooks,
};

/// Everything that tenants can ask for. Shared by all requests.
#[derive(Debug)]
pub struct Control {
    pub(crate) config: ControlConfig,
    pub(crate) store: Store,
    pub(crate) node: Arc<dyn Node>,
    pub(crate) tokens: TokenMaker,
    pub(crate) keys: KeyRing,
    pub(crate) catalogue: Catalogue,
    pub(crate) registry: Registry,
    pub(crate) snapshots: Arc<SnapshotCatalog>,
    pub(crate) templates: Arc<TemplateCatalog>,
    /// `None`: this server builds no templates.
    pub(crate) scheduler: Option<Arc<BuildScheduler>>,
    /// Somebody removes what nothing needs.
    pub(crate) collecting: Arc<AtomicBool>,
    /// Held by whoever looks again at what was left alone.
    pub(crate) looking_again: Arc<tokio::sync::Mutex<()>>,
    pub(crate) vault: Vault,
    pub(crate) journal: Journal,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) claims: Arc<Claims>,
    /// What must be finished although its client may be gone.
    tasks: TaskTracker,
    /// Ends the background tasks with this value.
    _stop: DropGuard,
}

impl Control {
    /// Loads what the store remembers and brings it in line with what the node really runs.
    pub async fn open(
        config: ControlConfig,
        store: Store,
        node: Arc<dyn Node>,
    ) -> Result<Arc<Self>> {
        // Before anything is compared: an end between the comparison and the subscription would
        // be missed.
        let events = node.events();
        let stop = CancellationToken::new();
        let images = node.snapshots().into_iter().map(|s| s.id).collect();
        let tokens = TokenMaker::new(&config.seed)?;
        let vault = Vault::new(&tokens)?;
        let webhooks = store.webhooks().await?;
        let hooks = Hooks::load(webhooks, &vault, config.webhooks, stop.clone());
        let hooks = Arc::new(hooks);
        let snapshots = Arc::new(SnapshotCatalog::load(&store, &images).await?);
        let templates = Arc::new(TemplateCatalog::load(&store, config.builds.as_ref()).await?);
        let scheduler = match config.builds.clone() {
            None => None,
            Some(builds) => Some(Arc::new(
                BuildScheduler::open(builds, &store, &templates, &snapshots, stop.child_token())
                    .await?,
            )),
        };
        let control = Arc::new(Self {
            tokens,
            keys: KeyRing::load(&store.tenants().await?, store.keys().await?)?,
            catalogue: Catalogue::new(config.templates.clone(), store.template_use().await?),
            registry: Registry::default(),
            snapshots,
            templates,
            scheduler,
            collecting: Arc::default(),
            looking_again: Arc::default(),
            vault,
            journal: Journal::start(store.clone(), Arc::clone(&hooks), &stop),
            hooks,
            claims: Arc::default(),
            tasks: TaskTracker::new(),
            _stop: stop.clone().drop_guard(),
            config,
            store,
            node,
        });
        control.reconcile().await?;
        control.mount_used_volumes().await;
        control.name_builtins().await?;
        control.resume_builds().await;
        control.follow(events, &stop);
        Ok(control)
    }

    /// Builds of templates, for operators.
    pub fn build_stats(&self) -> BuildStats {
        let scheduler = self.scheduler.as_ref();
        scheduler
            .map(|scheduler| scheduler.stats())
            .unwrap_or_default()
    }

    /// For the end of the server: waits for creates and kills under way, at most `limit`, and
    /// writes what is only in memory. Sandboxes keep running; builds go on at the next start.
    pub async fn drain(&self, limit: Duration) {
        self.tasks.close();
        let builds = async {
            if let Some(scheduler) = &self.scheduler {
                scheduler.drain(limit).await;
            }
        };
        let requests = tokio::time::timeout(limit, self.tasks.wait());
        let (requests, ()) = tokio::join!(requests, builds);
        if requests.is_err() {
            tracing::warn!(
                left = self.tasks.len(),
                "requests were still under way at the end"
            );
        }
        let _written = self.journal.flush().await;
        if let Err(error) = self.flush_key_use().await {
            tracing::warn!(error = %Chain(&error), "could not write when API keys were last used");
        }
    }

    /// [`Control::drain`] has begun.
    pub(crate) fn is_draining(&self) -> bool {
        self.tasks.is_closed()
    }

    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Runs work to its end even when the caller is dropped.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self.tasks.spawn(work).await {
            Ok(result) => result,
            Err(_) => Err(Error::Internal(
                "the request was interrupted inside the server",
            )),
        }
    }
}
