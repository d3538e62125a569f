//! What clients ask of the node, and what they conclude from its answers.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Error, Node};
use soulbox_types::{
    EndReason, Lifecycle, OnTimeout, PauseMode, SandboxId, SandboxSpec, TemplateId, UnixMillis,
};

use crate::{
    Model, ServerRun,
    known::{Create, Known, Reported},
};

const LONG: Duration = Duration::from_hours(1);
const MOST: usize = 8;
const MOST_SNAPSHOTS: usize = 6;

#[derive(Debug, Clone)]
pub(crate) enum Call {
    Create(Box<SandboxSpec>),
    Pause(PauseMode),
    Resume(UnixMillis, PauseMode),
    Kill,
    SetDeadline(UnixMillis),
    Snapshot(TemplateId),
    DeleteSnapshot(TemplateId),
}

#[derive(Debug)]
pub(crate) struct Answer {
    id: SandboxId,
    call: Call,
    result: Result<(), Error>,
}

impl Model {
    pub(crate) fn call(&mut self, run: &mut ServerRun) {
        let ids: Vec<_> = self.known.keys().cloned().collect();
        // Those that are being made or deleted have no use for anybody.
        let there = self.snapshots.iter().filter(|(_, is)| **is == Some(true));
        let snapshots: Vec<_> = there.map(|(id, _)| id.clone()).collect();
        let keep = if self.dice.one_in(2) {
            PauseMode::Memory
        } else {
            PauseMode::Filesystem
        };
        let some = self.dice.pick(&ids).cloned();
        let (id, call) = match (self.dice.below(24), some) {
            (0..4, _) if ids.len() < MOST => {
                let spec = self.spec(self.dice.pick(&snapshots).cloned());
                (spec.id.clone(), Call::Create(Box::new(spec)))
            }
            (4..10, Some(id)) => (id, Call::Pause(keep)),
            (10..17, Some(id)) => (id, Call::Resume(self.deadline(), keep)),
            (17..19, Some(id)) => (id, Call::Kill),
            (19..22, Some(id)) => (id, Call::SetDeadline(self.deadline())),
            (22, Some(id)) if snapshots.len() < MOST_SNAPSHOTS => {
                (id, Call::Snapshot(TemplateId::random()))
            }
            (23, Some(id)) => match self.dice.pick(&snapshots) {
                Some(snapshot) => (id, Call::DeleteSnapshot(snapshot.clone())),
                None => return,
            },
            _ => return,
        };
        self.note(&format!("{id}: {}", short(&call)));
        self.expect(&id, &call);
        let node = Arc::clone(&run.node);
        run.calls.spawn(async move {
            let result = match call.clone() {
                Call::Create(spec) => node.create(*spec).await.map(drop),
                Call::Pause(keep) => node.pause(&id, keep).await,
                Call::Resume(deadline, want) => node.resume(&id, deadline, want).await.map(drop),
                Call::Kill => node.destroy(&id, EndReason::Killed).await,
                Call::SetDeadline(deadline) => node.set_deadline(&id, deadline).await,
                Call::Snapshot(snapshot) => node.snapshot(&id, snapshot).await.map(drop),
                Call::DeleteSnapshot(snapshot) => node.delete_snapshot(&snapshot).await,
            };
            Answer { id, call, result }
        });
    }

    fn deadline(&self) -> UnixMillis {
        let soon = self.dice.one_in(10);
        let run = if soon {
            Duration::from_millis(1 + self.dice.next() % 3)
        } else {
            // Each is another one, so that they can be reported apart.
            LONG + Duration::from_millis(self.dice.next() % 1_000_000)
        };
        UnixMillis::now().plus(run)
    }

    fn spec(&self, snapshot: Option<TemplateId>) -> SandboxSpec {
        let on_timeout = match self.dice.below(3) {
            0 => OnTimeout::Pause(PauseMode::Memory),
            1 => OnTimeout::Pause(PauseMode::Filesystem),
            _ => OnTimeout::Kill,
        };
        SandboxSpec {
            lifecycle: Lifecycle {
                on_timeout,
                ..Lifecycle::default()
            },
            snapshot,
            deadline: self.deadline(),
            ..soulbox_testkit::spec()
        }
    }

    /// From now on it may be what was asked for.
    fn expect(&mut self, id: &SandboxId, call: &Call) {
        if let Call::Create(spec) = call {
            let known = Known::new(spec.deadline, spec.lifecycle.on_timeout);
            self.known.insert(id.clone(), known);
        }
        match call {
            Call::Snapshot(snapshot) | Call::DeleteSnapshot(snapshot) => {
                self.snapshots.insert(snapshot.clone(), None);
            }
            _ => {}
        }
        let known = self.known.get_mut(id).unwrap();
        known.in_flight += 1;
        known.calls += 1;
        match call {
            Call::Pause(keep) => {
                known.may_be.insert((*keep).into());
            }
            Call::Resume(deadline, want) => {
                known.may_be.insert(Reported::Running);
                let from_files = *want == PauseMode::Filesystem || known.died;
                if from_files && known.may_be(Reported::Memory) {
                    known.may_be.insert(Reported::Files);
                }
                known.deadlines.push(*deadline);
            }
            Call::Kill => {
                known.may_be.insert(Reported::Gone);
                known.may_end.insert(EndReason::Killed.as_str());
            }
            Call::SetDeadline(deadline) => known.deadlines.push(*deadline),
            Call::Create(_) | Call::Snapshot(_) | Call::DeleteSnapshot(_) => {}
        }
    }

    /// It was answered: what may be is narrowed down, if nothing else happened meanwhile.
    pub(crate) fn take(&mut self, answer: Answer) {
        let Answer { id, call, result } = answer;
        let said = result
            .as_ref()
            .map_or_else(ToString::to_string, |()| "ok".to_owned());
        self.note(&format!("{id}: {} -> {said}", short(&call)));
        match &call {
            Call::Snapshot(snapshot) if result.is_ok() => {
                self.snapshots.insert(snapshot.clone(), Some(true));
            }
            Call::DeleteSnapshot(snapshot) if result.is_ok() => {
                self.snapshots.insert(snapshot.clone(), Some(false));
            }
            _ => {}
        }
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        known.in_flight -= 1;
        match (&call, &result) {
            (Call::Create(_), Ok(())) => {
                known.create = Create::Acknowledged;
                if known.may_end.is_empty() {
                    known.may_be.remove(&Reported::Gone);
                }
            }
            (Call::Create(_), Err(_)) => {
                known.create = Create::Refused;
                known.may_be = [Reported::Gone].into();
            }
            // Its time may have been over after it was asked for, and before that was done.
            (Call::Resume(_, PauseMode::Filesystem), Err(_)) if known.may_be(Reported::Memory) => {
                known.may_be.insert(Reported::Files);
            }
            // Before its create has begun there is nothing to kill.
            (Call::Kill, Ok(())) if known.create == Create::Acknowledged => {
                known.may_be = [Reported::Gone].into();
            }
            _ => {}
        }
        if known.calls > 1 || known.disturbed {
            return;
        }
        match (call, result) {
            (Call::Pause(keep), Ok(())) => known.may_be = [keep.into()].into(),
            (Call::Resume(..), Ok(())) => known.may_be = [Reported::Running].into(),
            (Call::SetDeadline(deadline), Ok(())) => known.deadlines = vec![deadline],
            _ => {}
        }
    }
}

fn short(call: &Call) -> String {
    match call {
        Call::Create(spec) => format!("create, {:?}", spec.lifecycle.on_timeout),
        other => format!("{other:?}"),
    }
}
