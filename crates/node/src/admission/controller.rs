use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use soulbox_runtime::{Error, Result};
use tokio::{
    sync::{MutexGuard, Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    AdmissionConfig, Ask, Level, Resource,
    estimate::Estimates,
    ledger::{FRESH, Ledger, Need, Verdict},
    resource::Shortage,
};

/// The kernel answers within milliseconds, or the last look has to do.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// For operators: how admission control does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionStats {
    pub waiting: u64,
    /// Whose processes are being started.
    pub starting: u64,
    pub refused: Vec<(Resource, u64)>,
}

#[derive(Debug)]
pub(crate) struct AdmissionController {
    pub(super) config: AdmissionConfig,
    pub(crate) estimates: Estimates,
    /// Whoever has it is the head of the line. Fair: those behind come in order.
    pub(super) line: tokio::sync::Mutex<()>,
    pub(super) starts: Arc<Semaphore>,
    /// Something ended, was paused, or is ready.
    pub(super) changed: Notify,
    /// Held for short; the node's entries may be locked while it is, never the other way round.
    ledger: Mutex<Ledger>,
    /// One look at a time, or each would take off what the other has. Locked before the ledger,
    /// and on threads that may block.
    looking: Mutex<()>,
    look_under_way: AtomicBool,
    /// The server stops: nobody is let in, and nobody waits.
    pub(super) closed: CancellationToken,
    waiting: AtomicU64,
    refused: [AtomicU64; Resource::ALL.len()],
}

/// To start a sandbox's processes.
#[derive(Debug)]
#[must_use = "what it allows is allowed while it lives"]
pub(crate) struct Permit {
    pub(super) start: Option<OwnedSemaphorePermit>,
    pub(super) reserved: CapacityReservation,
}

impl Permit {
    /// Its processes run: the next may be started. What it will use stays set aside.
    pub(crate) fn started(self) -> CapacityReservation {
        drop(self.start);
        self.reserved
    }
}

/// What a sandbox will use, kept from others until this is dropped.
#[derive(Debug)]
#[must_use = "it is set aside while this lives"]
pub(crate) struct CapacityReservation {
    admission: Arc<AdmissionController>,
    need: Need,
}

impl Drop for CapacityReservation {
    fn drop(&mut self) {
        self.admission.ledger.lock().settle(self.need);
        self.admission.changed.notify_one();
    }
}

pub(super) struct Waiting<'a>(&'a AdmissionController);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AdmissionController {
    /// Blocks for a first look at the machine.
    pub(crate) fn open(config: AdmissionConfig) -> Self {
        let ledger = Ledger::new(config.gauge.read(), Instant::now());
        Self {
            estimates: Estimates::default(),
            line: tokio::sync::Mutex::default(),
            starts: Arc::new(Semaphore::new(config.starts)),
            changed: Notify::new(),
            ledger: Mutex::new(ledger),
            looking: Mutex::default(),
            look_under_way: AtomicBool::new(false),
            closed: CancellationToken::new(),
            waiting: AtomicU64::new(0),
            refused: Default::default(),
            config,
        }
    }

    pub(crate) fn counts_cpu(&self) -> bool {
        self.config.overcommit.cpu_millis.is_some()
    }

    pub(crate) fn stats(&self) -> AdmissionStats {
        let count = |resource: Resource| {
            let refused = self.refused[resource.index()].load(Ordering::Relaxed);
            (resource, refused)
        };
        let starting = self.config.starts - self.starts.available_permits().min(self.config.starts);
        AdmissionStats {
            waiting: self.waiting(),
            starting: starting as u64,
            refused: Resource::ALL.into_iter().map(count).collect(),
        }
    }

    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// At the last look.
    pub(crate) fn levels(&self) -> Vec<Level> {
        self.ledger.lock().levels().to_vec()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn count_waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    pub(crate) fn count_refusal(&self, resource: Resource) {
        self.refused[resource.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self, shortage: Shortage) -> Error {
        self.count_refusal(shortage.resource);
        shortage.into()
    }

    /// In order of arrival, to be the one who is next, with the right to start.
    pub(super) async fn come_to_the_front(
        &self,
        ask: Ask,
        until: Instant,
    ) -> Result<(MutexGuard<'_, ()>, Option<OwnedSemaphorePermit>)> {
        let front = async {
            let head = self.line.lock().await;
            let start = if ask.needs_start() {
                // Never closed.
                Arc::clone(&self.starts).acquire_owned().await.ok()
            } else {
                None
            };
            (head, start)
        };
        timeout_at(until, front)
            .await
            .map_err(|_| self.refuse(Shortage::starts(self.waiting())))
    }

    /// Sets aside what is needed if it fits, and if the sandbox gets hold of the rest by `hold`.
    pub(super) fn reserve(
        self: &Arc<Self>,
        need: Need,
        decides: bool,
        hold: impl FnOnce() -> Result<(), Shortage>,
    ) -> Result<CapacityReservation, Verdict> {
        let should_look = {
            let mut ledger = self.ledger.lock();
            let should_look = ledger.check(need, Instant::now(), decides)?;
            hold().map_err(Verdict::Shortage)?;
            ledger.reserve(need);
            ledger.short_since = None;
            should_look
        };
        if should_look {
            self.look_in_background();
        }
        Ok(CapacityReservation {
            admission: Arc::clone(self),
            need,
        })
    }

    /// Since when nobody could be let in: since now, when asked for the first time.
    pub(super) fn short_since(&self) -> Instant {
        let mut ledger = self.ledger.lock();
        *ledger.short_since.get_or_insert_with(Instant::now)
    }

    pub(crate) fn something_changed(&self) {
        self.ledger.lock().changed();
        self.changed.notify_one();
    }

    /// Blocks.
    pub(crate) fn look(&self) {
        let _alone = self.looking.lock();
        let before = self.ledger.lock().before_a_look(Instant::now());
        let reading = self.config.gauge.read();
        self.ledger.lock().looked(reading, before);
    }

    /// Looks at the machine as soon as the last look is not fresh any more.
    pub(super) async fn look_again(self: &Arc<Self>) {
        let taken = self.ledger.lock().taken();
        sleep_until(taken + FRESH).await;
        let admission = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || admission.look());
        if timeout(LOOK_LIMIT, looked).await.is_err() {
            tracing::warn!("the machine did not say within {LOOK_LIMIT:?} what is used of it");
        }
    }

    fn look_in_background(self: &Arc<Self>) {
        if self.look_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let admission = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            admission.look();
            admission.look_under_way.store(false, Ordering::Release);
        });
    }
}
