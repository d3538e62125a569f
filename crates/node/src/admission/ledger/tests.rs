use super::*;

const MIB: u64 = 1 << 20;
const ONE: Need = Need {
    memory: 24 * MIB,
    threads: 16,
    files: 8,
};

fn memory(used_mib: u64, bound_mib: u64) -> Reading {
    Reading {
        levels: vec![Level {
            resource: Resource::Memory,
            whose: "of the machine",
            used: used_mib * MIB,
            bound: bound_mib * MIB,
        }],
    }
}

fn is_short(verdict: Result<bool, Verdict>) -> Option<Resource> {
    match verdict {
        Err(Verdict::Shortage(shortage)) => Some(shortage.resource),
        _ => None,
    }
}

#[test]
fn what_is_set_aside_counts_until_a_look_that_began_after_it_was_used() {
    let now = Instant::now();
    let mut ledger = Ledger::new(memory(900, 960), now);
    assert_eq!(ledger.check(ONE, now, false), Ok(false));
    ledger.reserve(ONE);
    assert_eq!(ledger.check(ONE, now, false), Ok(false), "exactly full");
    ledger.reserve(ONE);
    assert_eq!(
        is_short(ledger.check(ONE, now, false)),
        Some(Resource::Memory)
    );

    // Made while somebody looks: that look may have missed it.
    let before = ledger.before_a_look(now);
    ledger.settle(ONE);
    ledger.looked(memory(900, 960), before);
    assert_eq!(ledger.reserved(), (ONE, ONE));
    assert_eq!(ledger.check(ONE, now, false), Err(Verdict::Unsure));
    let before = ledger.before_a_look(now);
    ledger.looked(memory(903, 960), before);
    assert_eq!(ledger.reserved(), (ONE, Need::default()));
    assert_eq!(ledger.check(ONE, now, false), Ok(false));
}

#[test]
fn a_look_from_before_an_end_does_not_refuse_unless_it_has_to() {
    let now = Instant::now();
    let mut ledger = Ledger::new(memory(960, 960), now);
    assert_eq!(
        is_short(ledger.check(ONE, now, false)),
        Some(Resource::Memory)
    );
    ledger.changed();
    assert_eq!(ledger.check(ONE, now, false), Err(Verdict::Unsure));
    assert_eq!(
        is_short(ledger.check(ONE, now, true)),
        Some(Resource::Memory)
    );
}

#[test]
fn an_old_look_serves_those_who_leave_plenty() {
    let now = Instant::now();
    let later = |millis| now + Duration::from_millis(millis);
    let plenty = Ledger::new(memory(0, 4096), now);
    assert_eq!(plenty.check(ONE, later(40), false), Ok(false));
    assert_eq!(plenty.check(ONE, later(500), false), Ok(true));
    assert_eq!(plenty.check(ONE, later(5000), false), Err(Verdict::Unsure));
    let scarce = Ledger::new(memory(0, 1000), now);
    assert_eq!(scarce.check(ONE, later(40), false), Ok(false));
    assert_eq!(scarce.check(ONE, later(500), false), Err(Verdict::Unsure));
}

#[test]
fn each_resource_lacks_by_itself_and_what_is_unknown_does_not() {
    let now = Instant::now();
    let level = |resource, used, bound| Level {
        resource,
        whose: "of the machine",
        used,
        bound,
    };
    for (resource, need) in [(Resource::Threads, 16), (Resource::Files, 8)] {
        let full = Reading {
            levels: vec![
                level(Resource::Memory, 0, 1 << 40),
                level(resource, 100, 100 + need - 1),
            ],
        };
        let ledger = Ledger::new(full, now);
        assert_eq!(is_short(ledger.check(ONE, now, false)), Some(resource));
        assert_eq!(ledger.check(Need::default(), now, false), Ok(false));
    }
    let unknown = Ledger::new(Reading::default(), now);
    assert_eq!(unknown.check(ONE, now, false), Ok(false));
}
