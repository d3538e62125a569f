//! Who is connected, and who leaves when there is no place for one more.
//!
//! ```text
//! silent ──first request──► busy ◄──request──► idle
//!    │                        │                  │
//!    │                 does not read             │
//!    │                        ▼                  │
//!    └──────────────► asked to leave ◄───────────┘
//! ```
//!
//! Who is silent or idle is asked to leave, and who has not taken a byte of what it asked for in
//! half a minute is cut, however much more it asks for meanwhile; never anybody else in the middle of
//! a request, an answer or a tunnel, however quiet. Clients keep idle connections in pools and notice
//! when one was closed; a client that has been silent for a second has nothing to ask.

mod book;
mod newcomer;
mod queue;
mod stall;
mod vacancies;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::places::Places;
use book::{Book, Entered};
pub(crate) use book::{GuestStats, Mood};
pub(crate) use newcomer::{Arrival, Newcomer};
pub(crate) use stall::Stall;

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
    cut: CancellationToken,
}

/// Something that must not be cut, until this is dropped.
#[derive(Debug)]
pub(crate) struct Underway {
    presence: Presence,
    for_good: bool,
    /// Goes on when the client has taken more of the answer.
    held: bool,
    /// It had something for the client before.
    gave: bool,
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
    fn new(shared: &Arc<Shared>, entered: Entered) -> Self {
        let Entered { number, leave, cut } = entered;
        Self {
            shared: Arc::clone(shared),
            number,
            leave,
            cut,
        }
    }

    /// A request has come.
    pub(crate) fn request(&self) -> Underway {
        self.shared.book.lock().begin(self.number);
        Underway {
            presence: self.clone(),
            for_good: false,
            held: false,
            gave: false,
        }
    }

    /// The client does not take the bytes that are for it as fast as they come.
    pub(crate) fn stalls(&self) -> Stall {
        Stall::begin(self.clone())
    }

    /// The client has taken some bytes of an answer.
    pub(crate) fn takes(&self) {
        self.shared.book.lock().takes(self.number);
    }

    /// What it does, and since when.
    pub(crate) fn mood(&self) -> (Mood, Instant) {
        self.shared.book.lock().mood(self.number)
    }

    /// Cancelled when the place is needed.
    pub(crate) fn leave(&self) -> &CancellationToken {
        &self.leave
    }

    /// Cancelled when the place is needed and the client does not read.
    pub(crate) fn cut(&self) -> &CancellationToken {
        &self.cut
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

    /// The answer goes on when the client has room for it.
    pub(crate) fn is_up_to_the_client(&mut self) {
        if !self.held {
            self.held = true;
            let Presence { shared, number, .. } = &self.presence;
            shared.book.lock().hold(*number);
        }
    }

    /// There is a piece for the client.
    pub(crate) fn gives(&mut self) {
        if self.gave && !self.held {
            // It has taken the one before, as nobody would have looked for this one otherwise.
            self.presence.takes();
        }
        self.gave = true;
        self.is_up_to_the_client();
    }

    /// The next piece of the answer is not there yet.
    pub(crate) fn is_up_to_us(&mut self) {
        self.release();
    }

    /// Whose answer this is.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    fn release(&mut self) {
        if self.held {
            self.held = false;
            let Presence { shared, number, .. } = &self.presence;
            shared.book.lock().release(*number);
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if self.for_good {
            return;
        }
        self.release();
        let Presence { shared, number, .. } = &self.presence;
        if shared.book.lock().finish(*number) {
            shared.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
