//! Limits how many connections of clients are open, as nginx does it: at the limit, the least
//! recently used idle connection is closed for a new one. One client may have part of them only.
//!
//! ```text
//! new ──first request──► busy ◄──request──► idle
//!  │                                         │
//!  └───────────► closed for another ◄────────┘
//! ```
//!
//! A connection with a request, a response or a tunnel in flight is never closed for another one,
//! however quiet it is; a client that takes nothing is subject to the write timeout. Clients keep
//! idle connections in pools and notice when one was closed.

mod pending;
mod table;

use std::{net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::limits::ConnectionLimits;
pub(crate) use pending::PendingConnection;
use table::{Admission, Table};
pub(crate) use table::{ConnectionStats, State};

/// When descriptors have run out.
const EVICTED_AT_ONCE: usize = 16;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimiter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    table: Mutex<Table>,
    /// For pending connections.
    slots: Arc<Semaphore>,
    /// A connection was closed, became idle, or is not being closed any more.
    changed: Notify,
}

impl Shared {
    fn pending(&self) -> usize {
        self.limits.max_pending - self.slots.available_permits()
    }

    fn admit(&self, client: IpAddr) -> Admission {
        let mut table = self.table.lock();
        table.admit(client, self.pending(), &self.limits)
    }
}

/// The right to be open, until this is dropped. Owned by the socket.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    handle: ConnectionHandle,
}

/// For those who serve the connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    shared: Arc<Shared>,
    id: u64,
    close: CancellationToken,
}

/// Keeps the connection busy until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    handle: ConnectionHandle,
    number: u64,
    until_close: bool,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self {
            shared: Arc::new(Shared {
                limits,
                table: Mutex::default(),
                slots: Arc::new(Semaphore::new(limits.max_pending)),
                changed: Notify::new(),
            }),
        }
    }

    /// Descriptors have run out.
    pub(crate) fn close_some(&self) {
        let mut table = self.shared.table.lock();
        for _ in 0..EVICTED_AT_ONCE {
            table.evict(None, &self.shared.limits);
        }
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        self.shared.table.lock().stats()
    }
}

impl ConnectionPermit {
    pub(crate) fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let ConnectionHandle { shared, id, .. } = &self.handle;
        shared.table.lock().remove(*id, shared.pending());
        shared.changed.notify_waiters();
    }
}

impl ConnectionHandle {
    /// A request has arrived.
    pub(crate) fn request(&self) -> InFlight {
        self.begin(true)
    }

    /// The socket takes no bytes.
    pub(crate) fn stalled_write(&self) -> InFlight {
        let write = self.begin(false);
        // The socket itself ends it.
        write.block(CancellationToken::new());
        write
    }

    fn begin(&self, is_request: bool) -> InFlight {
        let mut table = self.shared.table.lock();
        if table.cancel_close(self.id) {
            // Who waits for it must look again: another one is closed, or it is refused.
            self.shared.changed.notify_waiters();
        }
        InFlight {
            handle: self.clone(),
            number: table.begin(self.id, is_request),
            until_close: false,
        }
    }

    /// And since when: opened, idle, or nothing taken of what is blocked.
    pub(crate) fn state(&self) -> (State, Instant) {
        self.shared.table.lock().state(self.id)
    }

    /// Cancelled when the idle connection is closed for another one.
    pub(crate) fn close(&self) -> &CancellationToken {
        &self.close
    }

    /// Ends what waits for the client.
    pub(crate) fn reset_blocked(&self) {
        if let Some(connection) = self.shared.table.lock().open.get_mut(&self.id) {
            for (_, reset) in connection.blocked.drain() {
                reset.cancel();
            }
        }
    }

    pub(crate) fn count_no_request(&self) {
        self.shared.table.lock().stats.no_request += 1;
    }
}

impl InFlight {
    /// The connection has become a tunnel.
    pub(crate) fn keep_until_close(mut self) {
        self.until_close = true;
    }

    /// It goes on when the client takes bytes. `reset` ends it. That one more waits is no progress:
    /// otherwise a client that reads nothing could go on by sending requests.
    pub(crate) fn block(&self, reset: CancellationToken) {
        let mut table = self.handle.shared.table.lock();
        if let Some(connection) = table.open.get_mut(&self.handle.id) {
            if connection.blocked.is_empty() {
                connection.since = Instant::now();
            }
            connection.blocked.insert(self.number, reset);
        }
    }

    /// The client took the bytes.
    pub(crate) fn unblock(&self) {
        let mut table = self.handle.shared.table.lock();
        if let Some(connection) = table.open.get_mut(&self.handle.id)
            && connection.blocked.remove(&self.number).is_some()
        {
            connection.since = Instant::now();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.until_close {
            return;
        }
        let ConnectionHandle { shared, id, .. } = &self.handle;
        let mut table = shared.table.lock();
        if let Some(connection) = table.open.get_mut(id) {
            // Given up is not taken.
            connection.blocked.remove(&self.number);
        }
        if table.finish(*id) {
            shared.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
