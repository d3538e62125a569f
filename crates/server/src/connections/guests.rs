//! Who is connected, and who leaves when there is no place for one more.
//!
//! ```text
//! silent ──first request──► busy ◄──request──► idle
//!    │                                           │
//!    └────────────── asked to leave ◄────────────┘
//! ```
//!
//! Only who is silent or idle is asked to leave, the oldest first; never anybody in the middle of a
//! request, an answer or a tunnel. Clients keep idle connections in pools and notice when one was
//! closed; a client that has been silent for a second has nothing to ask.

mod book;

use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::places::Places;
use book::Book;
pub(crate) use book::{GuestStats, Mood};

/// For one of the others to finish, when all are busy. Longer than creates wait at the door of a
/// full machine.
const PLACE_WAIT: Duration = Duration::from_secs(5);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Guests {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    places: Places,
    book: Mutex<Book>,
    /// Somebody left, or could be asked to.
    changed: Notify,
}

/// A place that is taken, until this is dropped. Lives and dies with the socket.
#[derive(Debug)]
pub(crate) struct Guest {
    presence: Presence,
}

/// What a guest does, told by those who serve it.
#[derive(Debug, Clone)]
pub(crate) struct Presence {
    shared: Arc<Shared>,
    number: u64,
    leave: CancellationToken,
}

/// Something that must not be cut, until this is dropped.
#[derive(Debug)]
pub(crate) struct Underway {
    presence: Presence,
    for_good: bool,
}

impl Guests {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            shared: Arc::new(Shared {
                places,
                book: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    /// A place for somebody from this address, whose socket has this number. Others leave for it;
    /// `None` when nobody could in time.
    pub(crate) async fn place(&self, address: IpAddr, descriptor: u64) -> Option<Guest> {
        let shared = &self.shared;
        let deadline = Instant::now() + PLACE_WAIT;
        let mut left_before = None;
        loop {
            // Registered before looking: what comes in between is not missed.
            let mut changed = pin!(shared.changed.notified());
            changed.as_mut().enable();
            {
                let mut book = shared.book.lock();
                let left_before = *left_before.get_or_insert(book.left());
                // When one has left, its descriptor is free in place of this one.
                let descriptor = if book.left() == left_before {
                    descriptor
                } else {
                    0
                };
                if shared.places.has_room(book.open(), descriptor) {
                    let (number, leave) = book.enter(address, &shared.places);
                    drop(book);
                    return Some(Guest {
                        presence: Presence {
                            shared: Arc::clone(shared),
                            number,
                            leave,
                        },
                    });
                }
                book.ask_to_leave(Some(address), &shared.places);
            }
            if timeout_at(deadline, changed).await.is_err() {
                shared.book.lock().refused();
                return None;
            }
        }
    }

    /// Descriptors have run out: some of those who do nothing leave.
    pub(crate) fn make_way(&self) {
        self.shared
            .book
            .lock()
            .ask_to_leave(None, &self.shared.places);
    }

    pub(crate) fn stats(&self) -> GuestStats {
        self.shared.book.lock().stats()
    }
}

impl Guest {
    pub(crate) fn presence(&self) -> Presence {
        self.presence.clone()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Presence { shared, number, .. } = &self.presence;
        shared.book.lock().leave(*number, &shared.places);
        shared.changed.notify_waiters();
    }
}

impl Presence {
    /// A request has come.
    pub(crate) fn request(&self) -> Underway {
        self.begin(true)
    }

    /// The client does not take the bytes that are for it as fast as they come.
    pub(crate) fn stalled_write(&self) -> Underway {
        self.begin(false)
    }

    fn begin(&self, asked: bool) -> Underway {
        self.shared.book.lock().begin(self.number, asked);
        Underway {
            presence: self.clone(),
            for_good: false,
        }
    }

    /// What it does, and since when.
    pub(crate) fn mood(&self) -> (Mood, Instant) {
        self.shared.book.lock().mood(self.number)
    }

    /// Cancelled when the place is needed.
    pub(crate) fn leave(&self) -> &CancellationToken {
        &self.leave
    }

    /// It was closed without having asked anything.
    pub(crate) fn never_asked(&self) {
        self.shared.book.lock().never_asked();
    }
}

impl Underway {
    /// The connection has become a tunnel, which nobody cuts.
    pub(crate) fn for_good(mut self) {
        self.for_good = true;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if self.for_good {
            return;
        }
        let Presence { shared, number, .. } = &self.presence;
        if shared.book.lock().finish(*number) {
            shared.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
