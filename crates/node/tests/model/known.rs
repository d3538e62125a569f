//! What clients of the node may conclude from the answers they got.

use std::collections::BTreeSet;

use soulbox_runtime::Node;
use soulbox_types::{EndReason, OnTimeout, PauseMode, SandboxId, SandboxState, UnixMillis};

/// What the node says of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reported {
    Running,
    Memory,
    Files,
    Gone,
}

impl From<PauseMode> for Reported {
    fn from(kept: PauseMode) -> Self {
        match kept {
            PauseMode::Memory => Self::Memory,
            PauseMode::Filesystem => Self::Files,
        }
    }
}

impl Reported {
    /// `None` while it is on its way from one state to another.
    pub(crate) fn by(node: &impl Node, id: &SandboxId) -> Option<Self> {
        match node.get(id).map(|status| status.state) {
            None => Some(Self::Gone),
            Some(SandboxState::Running) => Some(Self::Running),
            Some(SandboxState::Paused) => node.paused(id).map(|paused| paused.kept.into()),
            Some(SandboxState::Creating | SandboxState::Destroying) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    /// Not answered (any more): it may be there or not.
    Asked,
    Acknowledged,
    Refused,
}

#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) create: Create,
    pub(crate) on_timeout: OnTimeout,
    /// What was answered, and what was asked for since.
    pub(crate) may_be: BTreeSet<Reported>,
    pub(crate) may_end: BTreeSet<&'static str>,
    pub(crate) deadlines: Vec<UnixMillis>,
    /// Calls under way, and since everything was quiet.
    pub(crate) in_flight: usize,
    pub(crate) calls: usize,
    /// It died, or a disk failed, since everything was quiet: answers are not the whole story.
    pub(crate) disturbed: bool,
    /// The disk could not be written to while something was to be recorded of it.
    pub(crate) unrecorded: bool,
    pub(crate) crashed: bool,
    /// Its processes were killed, perhaps while it stood still: nobody looks for them then.
    pub(crate) died: bool,
    /// It ran when the machine was restarted: it is paused on its files, and nothing is written of that.
    pub(crate) rebooted: bool,
    /// It could not be paused when its time was over, and got more. The next start does not know.
    postponed: bool,
    /// Events of this run of the server.
    pub(crate) ends: Vec<EndReason>,
}

impl Known {
    pub(crate) fn new(deadline: UnixMillis, on_timeout: OnTimeout) -> Self {
        Self {
            create: Create::Asked,
            on_timeout,
            may_be: [Reported::Gone, Reported::Running].into(),
            may_end: BTreeSet::new(),
            deadlines: vec![deadline],
            in_flight: 0,
            calls: 0,
            disturbed: false,
            unrecorded: false,
            crashed: false,
            died: false,
            rebooted: false,
            postponed: false,
            ends: Vec::new(),
        }
    }

    pub(crate) fn is_expired(&self) -> bool {
        let now = UnixMillis::now();
        self.postponed || self.deadlines.iter().any(|deadline| *deadline <= now)
    }

    pub(crate) fn may_be(&self, reported: Reported) -> bool {
        let by_itself = match (self.on_timeout, reported) {
            (OnTimeout::Kill, Reported::Gone) => true,
            (OnTimeout::Pause(kept), reported) => reported == kept.into(),
            _ => false,
        };
        self.may_be.contains(&reported) || (by_itself && self.is_expired())
    }

    pub(crate) fn may_end(&self, reason: EndReason) -> bool {
        self.may_end.contains(reason.as_str())
            || (reason == EndReason::Expired
                && self.on_timeout == OnTimeout::Kill
                && self.is_expired())
    }

    /// Everything is quiet, and this is what it is.
    pub(crate) fn settled(&mut self, reported: Reported, deadline: UnixMillis) {
        self.postponed = reported == Reported::Running && self.is_expired();
        self.may_be = [reported].into();
        self.may_end.clear();
        self.deadlines = vec![deadline];
        self.calls = 0;
        self.disturbed = false;
        self.unrecorded = false;
        self.crashed = false;
        self.died &= reported == Reported::Memory;
        self.rebooted &= reported == Reported::Files;
        if self.create == Create::Asked {
            self.create = Create::Acknowledged;
        }
    }

    /// Its first process was killed by somebody.
    pub(crate) fn died(&mut self) {
        (self.disturbed, self.died) = (true, true);
        self.may_be.extend([Reported::Gone, Reported::Files]);
        self.may_end.insert(EndReason::Died.as_str());
    }

    /// The server is gone, and with it whoever would have answered.
    pub(crate) fn server_crashed(&mut self) {
        self.in_flight = 0;
        self.crashed = true;
        for by_itself in [Reported::Memory, Reported::Files] {
            if self.may_be(by_itself) {
                self.may_be.insert(by_itself);
            }
        }
        if self.died {
            // Whoever looks for them finds that they are gone.
            self.may_be.insert(Reported::Files);
        }
        self.disturbed = true;
        self.ends.clear();
        if self.unrecorded {
            // Why it ended was in memory only.
            self.may_end.insert(EndReason::Died.as_str());
            // An end that nobody was reported of, and that could not be recorded, is none of one that
            // was paused: its files are there.
            if self.may_be.contains(&Reported::Gone) && self.may_be.len() > 1 {
                self.may_be.insert(Reported::Files);
            }
        }
    }

    pub(crate) fn machine_rebooted(&mut self) {
        if self.may_be.remove(&Reported::Memory) {
            self.may_be.insert(Reported::Files);
        }
        if self.may_be.remove(&Reported::Running) {
            self.may_be.insert(Reported::Files);
            self.rebooted = true;
        }
    }
}
