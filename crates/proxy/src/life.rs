//! The lives of the sandboxes that have traffic. When one ends or is paused, every stream to it is
//! cut at once, also those whose socket lingers.

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

/// Events tell at once; this finds what an event did not tell (missed, or sent before its time).
const SWEEP_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Life {
    ended: CancellationToken,
    streams: AtomicUsize,
    /// Of all its streams together.
    small_pieces: Arc<TokenBucket>,
}

impl Life {
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// For one of its streams.
    pub(crate) fn pace(&self) -> ChunkThrottle {
        ChunkThrottle::sharing(Arc::clone(&self.small_pieces))
    }

    /// Waits a moment for the news that the sandbox is gone; true when it came.
    pub(crate) async fn ends_within(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.ended.cancelled())
            .await
            .is_ok()
    }
}

/// In the extensions of an answer that comes from a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxEnd(CancellationToken);

impl SandboxEnd {
    pub(crate) fn of(life: &Life) -> Self {
        Self(life.ended.clone())
    }

    /// Returns when the sandbox has ended, or rests: nothing more of the answer comes.
    pub async fn comes(&self) {
        self.0.cancelled().await;
    }
}

/// One open stream of a sandbox.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) life: Arc<Life>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.life.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    NotRunning,
    TooMany,
}

#[derive(Debug)]
pub(crate) struct Lives {
    shared: Arc<Shared>,
    _watcher: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    node: Arc<dyn Node>,
    lives: Mutex<HashMap<SandboxId, Arc<Life>>>,
    small_pieces_per_second: u32,
}

impl Lives {
    /// Must be called within a tokio runtime.
    pub(crate) fn watch(node: Arc<dyn Node>, small_pieces_per_second: u32) -> Self {
        let shared = Arc::new(Shared {
            node,
            lives: Mutex::default(),
            small_pieces_per_second,
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
        let life = self.shared.life(id);
        // Asked again: an end between the two questions found no life to cut.
        if !self.shared.runs(id) {
            self.shared.end(id);
            return Err(NotOpened::NotRunning);
        }
        let stream = Stream { life };
        if stream.life.streams.fetch_add(1, Ordering::Relaxed) >= limit {
            return Err(NotOpened::TooMany);
        }
        Ok(stream)
    }

    pub(crate) fn runs(&self, id: &SandboxId) -> bool {
        self.shared.runs(id)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Life>>> {
        self.lives.lock()
    }

    fn life(&self, id: &SandboxId) -> Arc<Life> {
        let mut lives = self.lock();
        let life = lives.entry(id.clone()).or_insert_with(|| {
            Arc::new(Life {
                ended: CancellationToken::new(),
                streams: AtomicUsize::new(0),
                small_pieces: Arc::new(TokenBucket::new(self.small_pieces_per_second)),
            })
        });
        Arc::clone(life)
    }

    fn runs(&self, id: &SandboxId) -> bool {
        self.node
            .get(id)
            .is_some_and(|status| status.state == SandboxState::Running)
    }

    fn end(&self, id: &SandboxId) {
        if let Some(life) = self.lock().remove(id) {
            life.ended.cancel();
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
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut open = true;
    loop {
        tokio::select! {
            event = events.recv(), if open => match event {
                Ok(NodeEvent::Ended { id, .. } | NodeEvent::Paused { id }) => shared.end(&id),
                Err(RecvError::Lagged(_)) => shared.sweep(),
                Err(RecvError::Closed) => open = false,
            },
            _ = tick.tick() => shared.sweep(),
        }
    }
}
