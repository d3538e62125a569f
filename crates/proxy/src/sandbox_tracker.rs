//! The sandboxes that have traffic, with their streams. When a sandbox ends or is paused, all of its
//! streams are cut at once, also those whose socket lingers.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use soulbox_outgoing::{ChunkThrottle, TokenBucket};
use soulbox_runtime::{Node, NodeEvent};
use soulbox_types::{SandboxId, SandboxState};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Finds what no event reported: one may be missed, or be sent before the stream is registered.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct SandboxStreams {
    ended: CancellationToken,
    streams: AtomicUsize,
    /// Of all its streams together.
    small_chunks: Arc<TokenBucket>,
}

impl SandboxStreams {
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// For one of its streams.
    pub(crate) fn pace(&self) -> ChunkThrottle {
        ChunkThrottle::sharing(Arc::clone(&self.small_chunks))
    }

    /// Waits for the event that the sandbox has ended; `false` when there was none in time.
    pub(crate) async fn ends_within(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.ended.cancelled())
            .await
            .is_ok()
    }
}

/// One open stream of a sandbox.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) sandbox: Arc<SandboxStreams>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.sandbox.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    NotRunning,
    TooMany,
}

#[derive(Debug)]
pub(crate) struct SandboxTracker {
    shared: Arc<Shared>,
    _watcher: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    node: Arc<dyn Node>,
    sandboxes: Mutex<HashMap<SandboxId, Arc<SandboxStreams>>>,
    small_chunks_per_second: u32,
}

impl SandboxTracker {
    /// Must be called within a tokio runtime.
    pub(crate) fn watch(node: Arc<dyn Node>, small_chunks_per_second: u32) -> Self {
        let shared = Arc::new(Shared {
            node,
            sandboxes: Mutex::default(),
            small_chunks_per_second,
        });
        let watcher = tokio::spawn(watch(Arc::clone(&shared)));
        Self {
            shared,
            _watcher: AbortOnDropHandle::new(watcher),
        }
    }

    pub(crate) fn open(&self, id: &SandboxId, limit: usize) -> Result<Stream, NotOpened> {
        if !self.shared.runs(id) {
            return Err(NotOpened::NotRunning);
        }
        let sandbox = self.shared.sandbox(id);
        // Again: an end between the two checks found no streams to cut.
        if !self.shared.runs(id) {
            self.shared.end(id);
            return Err(NotOpened::NotRunning);
        }
        let stream = Stream { sandbox };
        if stream.sandbox.streams.fetch_add(1, Ordering::Relaxed) >= limit {
            return Err(NotOpened::TooMany);
        }
        Ok(stream)
    }

    pub(crate) fn runs(&self, id: &SandboxId) -> bool {
        self.shared.runs(id)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<SandboxStreams>>> {
        self.sandboxes.lock()
    }

    fn sandbox(&self, id: &SandboxId) -> Arc<SandboxStreams> {
        let mut sandboxes = self.lock();
        let sandbox = sandboxes.entry(id.clone()).or_insert_with(|| {
            Arc::new(SandboxStreams {
                ended: CancellationToken::new(),
                streams: AtomicUsize::new(0),
                small_chunks: Arc::new(TokenBucket::new(self.small_chunks_per_second)),
            })
        });
        Arc::clone(sandbox)
    }

    fn runs(&self, id: &SandboxId) -> bool {
        self.node
            .get(id)
            .is_some_and(|status| status.state == SandboxState::Running)
    }

    fn end(&self, id: &SandboxId) {
        if let Some(sandbox) = self.lock().remove(id) {
            sandbox.ended.cancel();
        }
    }

    fn sweep(&self) {
        let known: Vec<SandboxId> = self.lock().keys().cloned().collect();
        for id in known.iter().filter(|id| !self.runs(id)) {
            self.end(id);
        }
    }
}

async fn watch(shared: Arc<Shared>) {
    let mut events = shared.node.events();
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut open = true;
    loop {
        tokio::select! {
            event = events.recv(), if open => match event {
                Ok(NodeEvent::Ended { id, .. } | NodeEvent::Paused { id }) => shared.end(&id),
                Ok(NodeEvent::OutOfMemory { .. }) => {}
                Err(RecvError::Lagged(_)) => shared.sweep(),
                Err(RecvError::Closed) => open = false,
            },
            _ = tick.tick() => shared.sweep(),
        }
    }
}
