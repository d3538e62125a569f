//! Bounds how many connections are open: programs inside can connect too, and each costs memory.
//!
//! When all are taken, a new connection replaces the oldest one that has sent no request yet: whoever
//! opens connections and asks for nothing keeps nobody out.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use tokio::sync::Notify;

const MAX_CONNECTIONS: usize = 2_048;

#[derive(Default)]
pub(super) struct Connections {
    open: Cell<usize>,
    /// Those without a request so far, by the order in which they came.
    silent: RefCell<BTreeMap<u64, Rc<Notify>>>,
    next: Cell<u64>,
}

impl Connections {
    /// `None`: all are taken by connections that have sent a request.
    pub(super) fn admit(self: &Rc<Self>) -> Option<Open> {
        if self.open.get() >= MAX_CONNECTIONS {
            let (_, oldest) = self.silent.borrow_mut().pop_first()?;
            oldest.notify_one();
        }
        self.open.set(self.open.get() + 1);
        let number = self.next.replace(self.next.get() + 1);
        let replaced = Rc::new(Notify::new());
        self.silent
            .borrow_mut()
            .insert(number, Rc::clone(&replaced));
        Some(Open {
            connections: Rc::clone(self),
            number,
            replaced,
        })
    }
}

/// Counts a connection while it lives, however it ends.
pub(super) struct Open {
    connections: Rc<Connections>,
    number: u64,
    replaced: Rc<Notify>,
}

impl Open {
    /// It sends a request: from now on it is not replaced.
    pub(super) fn has_asked(&self) {
        self.connections.silent.borrow_mut().remove(&self.number);
    }

    /// Returns when it has to make room for another one.
    pub(super) async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.has_asked();
        self.connections.open.set(self.connections.open.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_replaced(open: &Open) -> bool {
        open.replaced().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_that_asks_for_nothing_makes_room_and_who_asks_stays() {
        let connections = Rc::new(Connections::default());
        let all: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| connections.admit().unwrap())
            .collect();
        all[0].has_asked();
        let more = connections.admit().unwrap();
        assert!(is_replaced(&all[1]));
        assert!(!is_replaced(&all[0]) && !is_replaced(&all[2]) && !is_replaced(&more));
    }

    #[test]
    fn when_all_have_asked_nobody_makes_room_until_one_ends() {
        let connections = Rc::new(Connections::default());
        let mut all: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| connections.admit().unwrap())
            .collect();
        all.iter().for_each(Open::has_asked);
        assert!(connections.admit().is_none());
        all.pop();
        assert!(connections.admit().is_some());
        drop(all);
        assert_eq!(connections.open.get(), 0);
        assert!(connections.silent.borrow().is_empty());
    }
}
