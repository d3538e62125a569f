//! Accepted connections that have no permit yet. Their number is bounded, as they hold descriptors
//! too; the kernel's backlog holds the others.

use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

use soulbox_proxy::client_subnet;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

use super::{ConnectionHandle, ConnectionLimiter, ConnectionPermit, Shared, table::Admission};

/// For a busy connection to finish. Longer than creates wait on a full machine.
const MAX_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct PendingConnection {
    shared: Arc<Shared>,
    client: IpAddr,
    _slot: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimiter {
    /// For a connection from this address whose socket has this descriptor. Returns when few
    /// enough are pending.
    pub(crate) async fn enqueue(&self, address: IpAddr, descriptor: u64) -> PendingConnection {
        let shared = Arc::clone(&self.shared);
        let slot = Arc::clone(&shared.slots).acquire_owned().await.ok();
        let client = client_subnet(address);
        let mut table = shared.table.lock();
        table.arrive(client, descriptor, &shared.limits);
        drop(table);
        PendingConnection {
            shared,
            client,
            _slot: slot,
        }
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.shared.table.lock().leave_queue(self.client);
    }
}

impl PendingConnection {
    /// `None` when it is refused.
    pub(crate) async fn admitted(self) -> Option<ConnectionPermit> {
        let shared = &self.shared;
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let mut changed = pin!(shared.changed.notified());
            // Before looking: a change in between is not missed.
            changed.as_mut().enable();
            match shared.admit(self.client) {
                Admission::Granted { id, close } => {
                    let shared = Arc::clone(shared);
                    let handle = ConnectionHandle { shared, id, close };
                    return Some(ConnectionPermit { handle });
                }
                Admission::Wait => {
                    if timeout_at(deadline, changed).await.is_ok() {
                        continue;
                    }
                }
                Admission::Refused => {}
            }
            shared.table.lock().stats.refused += 1;
            return None;
        }
    }
}
