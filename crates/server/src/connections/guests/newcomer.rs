//! From the door to a place.
//!
//! Whoever accepts connections waits with a newcomer only while somebody is on the way out for it,
//! which takes a moment, or when everybody behind it would have to wait as well. Otherwise the
//! newcomer waits on its own.

use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

use soulbox_proxy::neighbours;
use tokio::time::{Instant, timeout_at};

use super::{Guest, Guests, Presence, Shared, queue::Joined};

/// For one of the others to finish, when all are busy. Longer than creates wait at the door of a
/// full machine.
const PLACE_WAIT: Duration = Duration::from_secs(5);
/// For somebody who was asked to leave.
const LEAVING_WAIT: Duration = Duration::from_millis(500);
/// Somebody may have been silent, or not reading, for long enough meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum Arrival {
    Placed(Guest),
    Waits(Newcomer),
    /// All are busy, and enough others wait.
    Refused,
}

/// Somebody without a place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Newcomer {
    shared: Arc<Shared>,
    neighbours: IpAddr,
    descriptor: u64,
    since: Instant,
    queues: bool,
}

impl Guests {
    /// Somebody from this address, whose socket has this number.
    pub(crate) async fn arrive(&self, address: IpAddr, descriptor: u64) -> Arrival {
        let mut newcomer = Newcomer::new(&self.shared, neighbours(address), descriptor);
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            // Registered before looking: what comes in between is not missed.
            changed.as_mut().enable();
            let patience = match newcomer.look() {
                Look::Room(guest) => return Arrival::Placed(guest),
                Look::Leaving if newcomer.since.elapsed() < LEAVING_WAIT => LEAVING_WAIT,
                Look::Leaving | Look::Full => match newcomer.queue() {
                    Joined::Yes => return Arrival::Waits(newcomer),
                    Joined::NotNow if newcomer.since.elapsed() < PLACE_WAIT => PLACE_WAIT,
                    Joined::NotNow | Joined::No => {
                        self.shared.book.lock().refused();
                        return Arrival::Refused;
                    }
                },
            };
            wait(changed, newcomer.since + patience).await;
        }
    }
}

enum Look {
    Room(Guest),
    /// Somebody was asked to make room.
    Leaving,
    /// Nobody can be asked.
    Full,
}

impl Newcomer {
    fn new(shared: &Arc<Shared>, neighbours: IpAddr, descriptor: u64) -> Self {
        shared.book.lock().vacancies.somebody_comes();
        Self {
            shared: Arc::clone(shared),
            neighbours,
            descriptor,
            since: Instant::now(),
            queues: false,
        }
    }

    /// Others leave for it; `None` when nobody could in time.
    pub(crate) async fn place(&self) -> Option<Guest> {
        let deadline = self.since + PLACE_WAIT;
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if let Look::Room(guest) = self.look() {
                return Some(guest);
            }
            if Instant::now() >= deadline {
                self.shared.book.lock().refused();
                return None;
            }
            wait(changed, deadline).await;
        }
    }

    fn look(&self) -> Look {
        let Self {
            shared,
            neighbours,
            descriptor,
            ..
        } = self;
        let mut book = shared.book.lock();
        if let Some(entered) = book.enter(*neighbours, *descriptor, &shared.places) {
            return Look::Room(Guest {
                presence: Presence::new(shared, entered),
            });
        }
        if book.ask_to_leave(Some(*neighbours), &shared.places) {
            Look::Leaving
        } else {
            Look::Full
        }
    }

    fn queue(&mut self) -> Joined {
        let mut book = self.shared.book.lock();
        let joined = book.queue.join(self.neighbours, &self.shared.places);
        self.queues = joined == Joined::Yes;
        joined
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut book = self.shared.book.lock();
        book.vacancies.somebody_came();
        if self.queues {
            book.queue.quit(self.neighbours);
        }
        drop(book);
        if self.queues {
            // There may be room in the queue for whoever is at the door.
            self.shared.changed.notify_waiters();
        }
    }
}

/// Returns when it is time to look again, at the latest then.
async fn wait(changed: impl Future<Output = ()>, deadline: Instant) {
    let look_again = deadline.min(Instant::now() + LOOK_AGAIN);
    // Either is a reason.
    let _elapsed = timeout_at(look_again, changed).await;
}
