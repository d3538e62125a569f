//! Watching directories with inotify.
//!
//! - [`tree`]: the watched directories and the kernel's events as ours
//! - this file: a tree in the event loop, and the watchers that clients ask for events

mod tree;

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    rc::Rc,
};

use tokio::{io::unix::AsyncFd, sync::Notify};

pub(crate) use self::tree::Tree;
use crate::{
    poll::pollable,
    proto::filesystem::{CHMOD, CREATE, FilesystemEvent, WRITE},
    rpc::entry::entry_info,
    state::Envd,
    users::Names,
};

const MAX_WATCHERS: usize = 128;
/// What a watcher keeps for a client that does not ask.
const MAX_EVENTS: usize = 8_192;
const MAX_BATCHES: usize = 8;

/// A watched tree whose events are read without blocking.
pub(crate) struct Watch {
    tree: Tree,
    /// A second descriptor of the same inotify object, for the event loop.
    ready: Rc<AsyncFd<OwnedFd>>,
    include_entry: bool,
}

impl Watch {
    pub(crate) fn new(tree: Tree, include_entry: bool) -> io::Result<Self> {
        let ready = Rc::new(pollable(tree.as_fd().try_clone_to_owned()?)?);
        Ok(Self {
            tree,
            ready,
            include_entry,
        })
    }

    /// Resolves when events wait. `take` must follow.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if self.tree.has_more() {
            // Others get their turn between two batches.
            tokio::task::yield_now().await;
            return Ok(());
        }
        // Readiness is edge-triggered: clear it before `take` reads everything there is.
        self.ready.readable().await?.clear_ready();
        Ok(())
    }

    /// The events until now; a storm comes in several batches.
    pub(crate) fn take(&mut self) -> Vec<FilesystemEvent> {
        let root: PathBuf = self.tree.root().to_owned();
        let names = self.include_entry.then(Names::load);
        self.tree
            .read()
            .into_iter()
            .map(|(name, kind)| {
                let entry = match (&names, kind) {
                    (Some(names), CREATE | WRITE | CHMOD) => {
                        entry_info(&root.join(&name), names).ok()
                    }
                    _ => None,
                };
                FilesystemEvent { name, kind, entry }
            })
            .collect()
    }
}

/// Watchers that outlive their request.
#[derive(Default)]
pub(crate) struct Watchers {
    all: RefCell<HashMap<String, Rc<Watcher>>>,
}

struct Watcher {
    inner: RefCell<(Watch, VecDeque<FilesystemEvent>)>,
    removed: Notify,
}

impl Watcher {
    fn collect(&self) {
        let (watch, events) = &mut *self.inner.borrow_mut();
        // More batches than the kernel's queue holds would be new events, not waiting ones.
        for _ in 0..MAX_BATCHES {
            let room = MAX_EVENTS.saturating_sub(events.len());
            events.extend(watch.take().into_iter().take(room));
            if !watch.tree.has_more() {
                break;
            }
        }
    }
}

/// Keeps a watch until it is removed; `None` when there are too many.
pub(crate) fn keep(envd: &Rc<Envd>, watch: Watch) -> Option<String> {
    let mut all = envd.watchers.all.borrow_mut();
    if all.len() >= MAX_WATCHERS {
        return None;
    }
    let mut random = [0; 10];
    soulbox_types::id::fill_random(&mut random);
    let id = random
        .iter()
        .fold("w".to_owned(), |id, byte| format!("{id}{byte:02x}"));

    let ready = Rc::clone(&watch.ready);
    let watcher = Rc::new(Watcher {
        inner: RefCell::new((watch, VecDeque::new())),
        removed: Notify::new(),
    });
    all.insert(id.clone(), Rc::clone(&watcher));
    // Reads along, so that the kernel's queue never fills and new directories are watched at once.
    tokio::task::spawn_local(async move {
        loop {
            let more = watcher.inner.borrow().0.tree.has_more();
            tokio::select! {
                () = tokio::task::yield_now(), if more => {}
                ready = ready.readable(), if !more => match ready {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => break,
                },
                () = watcher.removed.notified() => break,
            }
            watcher.collect();
        }
    });
    Some(id)
}

impl Watchers {
    /// Everything that happened before this call is in the answer.
    pub(crate) fn take_events(&self, id: &str) -> Option<Vec<FilesystemEvent>> {
        let watcher = self.all.borrow().get(id).cloned()?;
        watcher.collect();
        let events = std::mem::take(&mut watcher.inner.borrow_mut().1);
        Some(events.into())
    }

    pub(crate) fn remove(&self, id: &str) -> bool {
        match self.all.borrow_mut().remove(id) {
            Some(watcher) => {
                watcher.removed.notify_one();
                true
            }
            None => false,
        }
    }
}
