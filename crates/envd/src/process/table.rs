//! All processes: those that run, and for a while those that ended.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use super::{
    ring::Budget,
    running::{Exit, Process},
    shortage::OomTracker,
};
use crate::proto::process::ProcessSelector;

/// How many ended processes are remembered. Each is also forgotten after half a minute.
const MAX_ENDED: usize = 256;

#[derive(Default)]
pub(crate) struct Table {
    live: RefCell<HashMap<u32, Rc<Process>>>,
    ended: RefCell<VecDeque<Rc<Process>>>,
    pub(super) budget: Budget,
    pub(super) started: Cell<u64>,
    shortages: OomTracker,
}

impl Table {
    pub(super) fn insert(&self, process: &Rc<Process>) {
        // The pid and the tag now mean the new process.
        self.ended
            .borrow_mut()
            .retain(|old| old.pid != process.pid && (old.tag.is_none() || old.tag != process.tag));
        self.live
            .borrow_mut()
            .insert(process.id(), Rc::clone(process));
        self.started.set(self.started.get() + 1);
    }

    pub(super) fn remove(&self, process: &Process) {
        let mut live = self.live.borrow_mut();
        // A process whose output outlived it may have lost its pid to a newer one.
        if live
            .get(&process.id())
            .is_some_and(|found| std::ptr::eq(&raw const **found, process))
        {
            live.remove(&process.id());
        }
    }

    pub(super) fn retain_ended(&self, process: &Rc<Process>) {
        self.remove(process);
        let mut ended = self.ended.borrow_mut();
        ended.push_back(Rc::clone(process));
        while ended.len() > MAX_ENDED {
            ended.pop_front();
        }
    }

    pub(super) fn forget(&self, process: &Rc<Process>) {
        process.forget_output();
        self.ended
            .borrow_mut()
            .retain(|old| !Rc::ptr_eq(old, process));
    }

    pub(crate) fn find(&self, selector: &ProcessSelector) -> Option<Rc<Process>> {
        self.find_live(selector).or_else(|| {
            let ended = self.ended.borrow();
            ended
                .iter()
                .rev()
                .find(|process| selects(selector, process))
                .cloned()
        })
    }

    pub(crate) fn find_live(&self, selector: &ProcessSelector) -> Option<Rc<Process>> {
        let live = self.live.borrow();
        match selector.pid {
            Some(pid) => live.get(&pid).filter(|p| p.is_listed()).cloned(),
            None => live
                .values()
                .find(|p| p.is_listed() && selects(selector, p))
                .cloned(),
        }
    }

    /// Running processes, oldest pid first.
    pub(crate) fn list(&self) -> Vec<Rc<Process>> {
        let mut all: Vec<_> = self
            .live
            .borrow()
            .values()
            .filter(|p| p.is_listed())
            .cloned()
            .collect();
        all.sort_by_key(|process| process.id());
        all
    }

    /// Called by the reaper. Orphans that were never ours are simply gone, but may be what the
    /// kernel killed for lack of memory. `memory` is what the sandbox may use of it.
    pub(super) fn exited(&self, pid: u32, exit: Exit, memory: u64) -> Option<Rc<Process>> {
        let process = self
            .live
            .borrow()
            .get(&pid)
            .filter(|p| !p.has_exited())
            .cloned();
        let before = process
            .as_ref()
            .map_or(0, |process| process.shortages_before);
        // What we ended ourselves needs no other reason.
        let by_us = process
            .as_ref()
            .is_some_and(|process| process.is_abandoned());
        let shortage = !by_us && self.shortages.is_oom_kill(exit, before);
        let process = process?;
        process.exited(exit, shortage.then_some(memory));
        Some(process)
    }

    pub(crate) fn kill_all(&self) {
        for process in self.live.borrow().values() {
            process.kill();
        }
    }
}

fn selects(selector: &ProcessSelector, process: &Process) -> bool {
    match (selector.pid, &selector.tag) {
        (Some(pid), _) => process.id() == pid,
        (None, Some(tag)) => process.tag.as_ref() == Some(tag),
        (None, None) => false,
    }
}
