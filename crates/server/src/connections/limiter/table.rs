//! The table of open connections. Every operation is short and done under one lock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connections::limits::ConnectionLimits;

/// A client that connects to send a request has sent it by then.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(1);
/// Connections without a request may have one in so many of all. Beyond that they replace each
/// other: a flood of them must not replace the idle connections of clients that do send requests.
const NEW_SHARE: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No request has arrived yet.
    New,
    /// A request is in flight, or bytes of a response are.
    Busy,
    /// Between two requests.
    Idle,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConnectionStats {
    pub(crate) new: usize,
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    /// Busy, but the client takes nothing.
    pub(crate) stalled: usize,
    /// Closed while idle, in favour of new ones.
    pub(crate) evicted: u64,
    /// Closed on arrival: the limit was reached and no connection was idle.
    pub(crate) refused: u64,
    /// Closed since no request arrived in time.
    pub(crate) no_request: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    client: IpAddr,
    in_flight: usize,
    has_requested: bool,
    /// When it was opened, became idle, or the client last took something of what is blocked.
    pub(super) since: Instant,
    /// Its key in `new` or `idle`.
    position: u64,
    /// What waits for the client, and how to end it.
    pub(super) blocked: HashMap<u64, CancellationToken>,
    close: CancellationToken,
}

#[derive(Debug)]
pub(super) enum Admission {
    Granted {
        id: u64,
        close: CancellationToken,
    },
    /// An idle connection is being closed for it, or all are busy.
    Wait,
    /// The client has as many as it may, all of them busy, or so many wait that others would not
    /// be accepted.
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) open: HashMap<u64, Connection>,
    /// Connections without a request, oldest first.
    new: BTreeMap<u64, u64>,
    /// Idle connections, least recently used first.
    idle: BTreeMap<u64, u64>,
    /// Idle connections that are being closed.
    closing: BTreeSet<u64>,
    per_client: HashMap<IpAddr, usize>,
    /// Of each client, the connections that wait to be admitted.
    pending: HashMap<IpAddr, usize>,
    /// While descriptors are scarce, the number of connections does not grow beyond this.
    ceiling: Option<usize>,
    sequence: u64,
    pub(super) stats: ConnectionStats,
}

impl Table {
    /// A connection was accepted. The kernel gives out the lowest free descriptor, so its number
    /// is about how many are in use.
    pub(super) fn arrive(&mut self, client: IpAddr, descriptor: u64, limits: &ConnectionLimits) {
        *self.pending.entry(client).or_default() += 1;
        if descriptor < limits.max_descriptors {
            self.ceiling = None;
        } else {
            self.ceiling.get_or_insert(self.open.len());
        }
    }

    /// The connection has been admitted or refused.
    pub(super) fn leave_queue(&mut self, client: IpAddr) {
        decrement(&mut self.pending, client);
    }

    /// `pending`: so many ask for it.
    pub(super) fn admit(
        &mut self,
        client: IpAddr,
        pending: usize,
        limits: &ConnectionLimits,
    ) -> Admission {
        let own = self.per_client.get(&client).copied().unwrap_or(0);
        let at_own_limit = own >= limits.max_per_client;
        if !at_own_limit && limits.allow(self.open.len(), self.ceiling) {
            return self.insert(client);
        }
        let own_pending = self.pending.get(&client).copied().unwrap_or(0);
        if at_own_limit && own_pending > limits.max_pending_at_own_limit() {
            return Admission::Refused;
        }
        // A client at its own limit does not get the connections of others.
        let of = at_own_limit.then_some(client);
        // One for one: closing takes HTTP/2 a round trip.
        if self.closing.len() < pending {
            self.evict(of, limits);
        }
        if at_own_limit && !self.closing.iter().any(|id| self.is_of(*id, of)) {
            return Admission::Refused;
        }
        Admission::Wait
    }

    fn insert(&mut self, client: IpAddr) -> Admission {
        let (id, close) = (self.next(), CancellationToken::new());
        let connection = Connection {
            client,
            in_flight: 0,
            has_requested: false,
            since: Instant::now(),
            position: id,
            blocked: HashMap::new(),
            close: close.clone(),
        };
        self.open.insert(id, connection);
        self.new.insert(id, id);
        *self.per_client.entry(client).or_default() += 1;
        Admission::Granted { id, close }
    }

    pub(super) fn remove(&mut self, id: u64, pending: usize) {
        self.unlist(id);
        if self.closing.remove(&id) {
            self.stats.evicted += 1;
        }
        if let Some(connection) = self.open.remove(&id) {
            decrement(&mut self.per_client, connection.client);
        }
        if pending == 0 {
            // No connection waits for this descriptor: something else may take it.
            self.ceiling = self.ceiling.map(|ceiling| ceiling.min(self.open.len()));
        }
    }

    /// A request that crosses with the close is served first.
    pub(super) fn cancel_close(&mut self, id: u64) -> bool {
        self.closing.remove(&id)
    }

    /// Returns a number for what is in flight from now on.
    pub(super) fn begin(&mut self, id: u64, is_request: bool) -> u64 {
        self.unlist(id);
        if let Some(connection) = self.open.get_mut(&id) {
            connection.in_flight += 1;
            connection.has_requested |= is_request;
        }
        self.next()
    }

    /// `true` when the connection can be closed for another one from now on.
    pub(super) fn finish(&mut self, id: u64) -> bool {
        let position = self.next();
        let Some(connection) = self.open.get_mut(&id) else {
            return false;
        };
        connection.in_flight -= 1;
        if connection.in_flight > 0 {
            return false;
        }
        if connection.has_requested {
            connection.since = Instant::now();
            connection.position = position;
            self.idle.insert(position, id);
        } else {
            self.new.insert(connection.position, id);
        }
        true
    }

    /// Closes an idle connection, of this client if one is given.
    pub(super) fn evict(&mut self, of: Option<IpAddr>, limits: &ConnectionLimits) {
        let is_of = |id: &&u64| self.is_of(**id, of);
        let new = self.new.values().find(is_of).copied();
        let idle = self.idle.values().find(is_of).copied();
        let oldest = new.and_then(|id| self.open.get(&id));
        let new_first = self.new.len() > limits.max_open / NEW_SHARE
            || oldest.is_some_and(|oldest| oldest.since.elapsed() >= FIRST_REQUEST_GRACE);
        let chosen = if new_first {
            new.or(idle)
        } else {
            idle.or(new)
        };
        if let Some(id) = chosen {
            self.unlist(id);
            self.closing.insert(id);
            self.open[&id].close.cancel();
        }
    }

    fn unlist(&mut self, id: u64) {
        if let Some(connection) = self.open.get(&id) {
            self.new.remove(&connection.position);
            self.idle.remove(&connection.position);
        }
    }

    fn is_of(&self, id: u64, client: Option<IpAddr>) -> bool {
        client.is_none_or(|client| self.open.get(&id).is_some_and(|c| c.client == client))
    }

    /// And since when. A busy connection has a past only if something of it is blocked.
    pub(super) fn state(&self, id: u64) -> (State, Instant) {
        match self.open.get(&id) {
            Some(c) if c.in_flight > 0 && !c.blocked.is_empty() => (State::Busy, c.since),
            Some(c) if c.in_flight > 0 => (State::Busy, Instant::now()),
            Some(c) if c.has_requested => (State::Idle, c.since),
            Some(c) => (State::New, c.since),
            None => (State::Idle, Instant::now()),
        }
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        let stalled = self.open.values().filter(|c| !c.blocked.is_empty());
        let (new, idle, stalled) = (self.new.len(), self.idle.len(), stalled.count());
        ConnectionStats {
            new,
            idle,
            stalled,
            busy: self.open.len() - new - idle - stalled - self.closing.len(),
            ..self.stats
        }
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

fn decrement(counts: &mut HashMap<IpAddr, usize>, client: IpAddr) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}
