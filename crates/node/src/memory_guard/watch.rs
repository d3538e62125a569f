//! What follows from the kernel's use of memory.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use soulbox_types::SandboxId;
use tokio::time::Instant;

use super::KernelMemory;

/// Of the machine's memory, what may be charged to nobody before it is asked whose it is: less than
/// the reserve (a twentieth) that nobody else may use. Not less than this, since there is always some.
const STEP_PART: u64 = 32;
const LEAST_STEP: u64 = 128 << 20;
/// From this part of a step on, it is looked at more often.
const NEAR_PART: u64 = 4;
/// A sandbox may hold so much in any case: a hundred busy connections have less.
const ALLOWED: u64 = 64 << 20;
/// Nor is one to blame that has less than this part of what the largest one has.
const LARGEST_PART: u64 = 4;
/// Of what has grown, the part that sandboxes must hold for any of them to be to blame.
const BLAME_PART: u64 = 2;
/// When sockets lack memory and no sandbox is to blame, it is somebody else on this machine.
const FRUITLESS: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alert {
    None,
    /// It grows.
    Near,
    /// Ask whose it is.
    Look,
}

/// What sandboxes hold, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) living: HashMap<SandboxId, u64>,
    /// Of those that are being ended, which takes a moment: until then the memory is not back.
    pub(super) dying: HashMap<SandboxId, u64>,
    /// `false`: somebody may hold more than this.
    pub(super) complete: bool,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// What sandboxes did not have of it when they were asked: drivers, other programs' sockets, and
    /// what is charged after all. Only what comes on top of it can be theirs. `None`: nobody was
    /// asked yet.
    others: Option<u64>,
    /// Short sockets are no reason to ask before this.
    asked_until: Option<Instant>,
}

/// So much more than before is worth a look at every sandbox.
pub(super) fn step(total: u64) -> u64 {
    (total / STEP_PART).max(LEAST_STEP)
}

impl Watch {
    pub(super) fn observe(&mut self, memory: &KernelMemory, now: Instant) -> Alert {
        let Some(others) = &mut self.others else {
            return Alert::Look;
        };
        *others = memory.unexplained.min(*others);
        let (grown, step) = (memory.unexplained - *others, step(memory.total));
        let asked = self.asked_until.is_some_and(|until| now < until);
        if grown >= step || (memory.sockets_short && !asked) {
            Alert::Look
        } else if grown >= step / NEAR_PART {
            Alert::Near
        } else {
            Alert::None
        }
    }

    /// Who must end, of the living, the largest first.
    pub(super) fn judge(
        &mut self,
        memory: &KernelMemory,
        now: Instant,
        held: &Holders,
    ) -> Vec<(SandboxId, u64)> {
        let living: u64 = held.living.values().sum();
        let together = living.saturating_add(held.dying.values().sum());
        let is_blamed = memory.sockets_short
            || match self.others {
                // Asked only to know from where on it grows.
                None => together >= step(memory.total),
                Some(others) => {
                    let grown = memory.unexplained.saturating_sub(others);
                    together >= grown / BLAME_PART
                }
            };
        self.move_baseline(memory.unexplained.saturating_sub(together), held.complete);
        if !is_blamed {
            return Vec::new();
        }
        let mut holders: Vec<_> = held
            .living
            .iter()
            .map(|(id, bytes)| (id.clone(), *bytes))
            .collect();
        holders.sort_unstable_by_key(|(_, bytes)| Reverse(*bytes));
        let all = held.living.values().chain(held.dying.values());
        let largest = all.max().copied().unwrap_or(0);
        let least = (largest / LARGEST_PART).max(ALLOWED + 1);
        let too_much = holders
            .iter()
            .take_while(|(_, bytes)| *bytes >= least)
            .count();
        // Many that have a little each fill the machine as well. What the dying have comes back.
        let one = usize::from(living >= step(memory.total));
        holders.truncate(too_much.max(one));
        self.asked_until = holders.is_empty().then(|| now + FRUITLESS);
        holders
    }

    /// What was not counted could be anybody's: it must not pass for what others have.
    fn move_baseline(&mut self, others: u64, complete: bool) {
        self.others = match self.others {
            Some(before) if !complete => Some(before.min(others)),
            None if !complete => None,
            _ => Some(others),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 32 << 30;
    const STEP_MIB: u64 = 1024;

    /// When nothing was unexplained.
    fn asked() -> Watch {
        let mut watch = Watch::default();
        assert!(judge(&mut watch, &memory(0), &[]).is_empty());
        watch
    }

    fn memory(unexplained_mib: u64) -> KernelMemory {
        KernelMemory {
            total: TOTAL,
            unexplained: unexplained_mib << 20,
            sockets_short: false,
        }
    }

    fn short(unexplained_mib: u64) -> KernelMemory {
        KernelMemory {
            sockets_short: true,
            ..memory(unexplained_mib)
        }
    }

    fn bytes(mib: &[(&str, u64)]) -> HashMap<SandboxId, u64> {
        let each = mib.iter();
        each.map(|(id, mib)| (id.parse().unwrap(), mib << 20))
            .collect()
    }

    fn held(mib: &[(&str, u64)]) -> Holders {
        Holders {
            living: bytes(mib),
            dying: HashMap::new(),
            complete: true,
        }
    }

    fn judge(watch: &mut Watch, memory: &KernelMemory, mib: &[(&str, u64)]) -> Vec<String> {
        judge_all(watch, memory, &held(mib))
    }

    fn judge_all(watch: &mut Watch, memory: &KernelMemory, holders: &Holders) -> Vec<String> {
        let judged = watch.judge(memory, Instant::now(), holders);
        judged.into_iter().map(|(id, _)| id.to_string()).collect()
    }

    fn observe(watch: &mut Watch, memory: &KernelMemory) -> Alert {
        watch.observe(memory, Instant::now())
    }

    #[test]
    fn nobody_is_asked_while_little_is_unexplained() {
        let mut watch = asked();
        for (mib, alert) in [
            (100, Alert::None),
            (STEP_MIB / 4, Alert::Near),
            (STEP_MIB - 1, Alert::Near),
            (STEP_MIB, Alert::Look),
        ] {
            assert_eq!(observe(&mut watch, &memory(mib)), alert, "{mib} MiB");
        }
        assert_eq!(step(1 << 30), LEAST_STEP, "a small machine has some too");
    }

    #[test]
    fn at_the_start_it_is_asked_what_is_there_already() {
        let mut watch = Watch::default();
        let now = memory(STEP_MIB - 100);
        assert_eq!(observe(&mut watch, &now), Alert::Look);
        assert!(judge(&mut watch, &now, &[("i1", 200)]).is_empty());
        assert_eq!(
            observe(&mut watch, &now),
            Alert::None,
            "200 MiB may be held"
        );
        assert_eq!(
            observe(&mut watch, &memory(2 * STEP_MIB - 300)),
            Alert::Look
        );
        let left = judge(
            &mut Watch::default(),
            &memory(STEP_MIB),
            &[("i1", STEP_MIB)],
        );
        assert_eq!(left, ["i1"], "of a sandbox that outlived its server");
    }

    #[test]
    fn what_is_nobodys_here_is_asked_for_once() {
        let mut watch = asked();
        let drivers = memory(3 * STEP_MIB);
        assert_eq!(observe(&mut watch, &drivers), Alert::Look);
        assert!(judge(&mut watch, &drivers, &[("i1", 10)]).is_empty());
        assert_eq!(observe(&mut watch, &drivers), Alert::None);
        // The 10 MiB that a sandbox had are still its own.
        assert_eq!(observe(&mut watch, &memory(4 * STEP_MIB - 10)), Alert::Look);
    }

    #[test]
    fn what_went_away_must_not_hide_what_comes() {
        let mut watch = asked();
        let before = memory(3 * STEP_MIB);
        assert!(judge(&mut watch, &before, &[]).is_empty());
        assert_eq!(observe(&mut watch, &memory(100)), Alert::None);
        assert_eq!(observe(&mut watch, &memory(100 + STEP_MIB)), Alert::Look);
    }

    #[test]
    fn whoever_holds_most_ends_and_who_holds_what_it_may_does_not() {
        let judged = |held: &[(&str, u64)]| judge(&mut asked(), &short(STEP_MIB), held);
        assert_eq!(
            judged(&[("i1", 900), ("i2", 300), ("i3", 200), ("i4", 1)]),
            ["i1", "i2"]
        );
        assert_eq!(judged(&[("i1", 65), ("i2", 64)]), ["i1"]);
        assert!(judged(&[("i1", 64)]).is_empty());
        assert!(judged(&[]).is_empty());
    }

    #[test]
    fn while_one_is_dying_its_neighbours_are_not_to_blame() {
        let holders = Holders {
            dying: bytes(&[("i1", 2100)]),
            ..held(&[("i2", 100), ("i3", 30)])
        };
        for now in [memory(2300), short(2300)] {
            let mut watch = asked();
            assert!(judge_all(&mut watch, &now, &holders).is_empty());
            assert_eq!(observe(&mut watch, &memory(200)), Alert::None, "it is gone");
        }
        let other = Holders {
            dying: bytes(&[("i1", 2100)]),
            ..held(&[("i2", 900)])
        };
        assert_eq!(judge_all(&mut asked(), &memory(3000), &other), ["i2"]);
    }

    #[test]
    fn what_is_not_in_sockets_is_nobodys_fault() {
        let mut watch = asked();
        let pipes = memory(STEP_MIB);
        assert!(judge(&mut watch, &pipes, &[("i1", 300), ("i2", 211)]).is_empty());
        assert_eq!(
            observe(&mut watch, &pipes),
            Alert::Near,
            "the rest is others'"
        );
        // Half of what comes on top of those is theirs.
        let more = memory(2 * STEP_MIB);
        assert_eq!(
            judge(&mut watch, &more, &[("i1", 557), ("i2", 211)]),
            ["i1", "i2"]
        );
        assert_eq!(
            judge(&mut asked(), &short(STEP_MIB), &[("i1", 300)]),
            ["i1"],
            "sockets are, when those are short"
        );
    }

    #[test]
    fn what_was_not_counted_does_not_pass_for_others() {
        let unknown = || Holders {
            complete: false,
            ..held(&[("i1", 30)])
        };
        let mut watch = asked();
        let now = memory(2 * STEP_MIB);
        assert!(judge_all(&mut watch, &now, &unknown()).is_empty());
        assert_eq!(observe(&mut watch, &now), Alert::Look);
        assert_eq!(judge(&mut watch, &now, &[("i1", 1500)]), ["i1"]);
        let mut new = Watch::default();
        assert!(judge_all(&mut new, &now, &unknown()).is_empty());
        assert_eq!(observe(&mut new, &now), Alert::Look);
    }

    #[test]
    fn many_that_hold_a_little_each_end_one_by_one() {
        let ids: Vec<_> = (0..20).map(|n| format!("i{n}")).collect();
        let mut many: Vec<_> = ids.iter().map(|id| (id.as_str(), 60)).collect();
        many[7].1 = 61;
        let mut watch = asked();
        let now = memory(2 * STEP_MIB);
        assert_eq!(judge(&mut watch, &now, &many), ["i7"]);
        assert_eq!(
            observe(&mut watch, &now),
            Alert::Look,
            "the others still have it"
        );
        assert!(
            judge(&mut watch, &now, &many[..17]).is_empty(),
            "less than a step"
        );
    }

    #[test]
    fn short_sockets_are_a_reason_too_but_not_all_the_time() {
        let short = short(100);
        let mut watch = asked();
        let now = Instant::now();
        assert_eq!(watch.observe(&short, now), Alert::Look);
        assert!(watch.judge(&short, now, &held(&[("i1", 20)])).is_empty());
        assert_eq!(
            watch.observe(&short, now),
            Alert::None,
            "it is somebody else's"
        );
        assert_eq!(watch.observe(&short, now + FRUITLESS), Alert::Look);
        assert_eq!(watch.judge(&short, now, &held(&[("i1", 90)])).len(), 1);
        assert_eq!(watch.observe(&short, now), Alert::Look, "there may be more");
    }
}
