use std::sync::Arc;

use soulbox_types::{PauseMode, SandboxSpec, SandboxState, UnixMillis};

use super::*;
use crate::Paused;

const OURS: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const THEIRS: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

fn running(id: &str, tenant: &str) -> SandboxStatus {
    let spec = SandboxSpec {
        id: id.parse().unwrap(),
        tenant: tenant.parse().unwrap(),
        created_at: UnixMillis(1),
        deadline: UnixMillis(2),
        ..soulbox_testkit::spec()
    };
    SandboxStatus::new(spec, SandboxState::Running)
}

fn id(text: &str) -> SandboxId {
    text.parse().unwrap()
}

/// Id, state and deadline of a tenant's, in the order of their ids.
fn seen(cache: &StatusCache, tenant: &str) -> Vec<(String, SandboxState, u64)> {
    let mut seen = Vec::new();
    cache.visit(Some(&tenant.parse().unwrap()), &mut |visited| {
        let id = visited.spec.id.to_string();
        seen.push((id, visited.state, visited.deadline.0));
    });
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    seen
}

fn move_deadline(cache: &StatusCache, name: &str, deadline: u64) {
    let mut status = cache.get(&id(name)).unwrap();
    Arc::make_mut(&mut status.spec).deadline = UnixMillis(deadline);
    cache.set(status);
}

#[test]
fn each_tenant_sees_its_own_as_they_are() {
    let cache = StatusCache::default();
    for name in ["i1", "i2", "i3"] {
        cache.set(running(name, OURS));
    }
    cache.set(running("i4", THEIRS));
    move_deadline(&cache, "i2", 9);
    let mut paused = cache.get(&id("i3")).unwrap();
    paused.state = SandboxState::Paused;
    paused.paused = Some(Paused {
        kept: PauseMode::Memory,
        at: UnixMillis(3),
    });
    cache.set(paused.clone());

    let expected = |id: &str, state, deadline| (id.to_owned(), state, deadline);
    assert_eq!(
        seen(&cache, OURS),
        [
            expected("i1", SandboxState::Running, 2),
            expected("i2", SandboxState::Running, 9),
            expected("i3", SandboxState::Paused, 2),
        ]
    );
    assert_eq!(cache.get(&id("i3")).unwrap().paused, paused.paused);
    assert_eq!(seen(&cache, THEIRS).len(), 1);
    assert!(seen(&cache, "01890a5d-ac96-774b-bcce-b302099a8059").is_empty());
}

#[test]
fn the_others_stay_whoever_goes() {
    let cache = StatusCache::default();
    for number in 0..20 {
        cache.set(running(&format!("i{number:02}"), OURS));
    }
    // The first, the last, one in the middle, and one that changes its tenant.
    for name in ["i00", "i19", "i07"] {
        cache.remove(&id(name));
        assert!(cache.get(&id(name)).is_none());
    }
    cache.set(running("i05", THEIRS));
    move_deadline(&cache, "i18", 7);
    move_deadline(&cache, "i01", 7);
    let seen = seen(&cache, OURS);
    assert_eq!(seen.len(), 16);
    for (name, _, deadline) in &seen {
        let moved = name == "i18" || name == "i01";
        assert_eq!(*deadline, if moved { 7 } else { 2 }, "{name}");
        assert_eq!(cache.get(&id(name)).unwrap().spec.id.to_string(), *name);
    }
}

#[test]
fn a_copy_that_applies_the_changes_shows_the_same() {
    let cache = StatusCache::default();
    cache.set(running("i1", OURS));
    cache.set(running("i2", OURS));
    let (snapshot, mut changes) = cache.subscribe();
    let copy = StatusCache::copy_of(snapshot);
    move_deadline(&cache, "i1", 5);
    cache.remove(&id("i2"));
    cache.set(running("i3", OURS));
    while let Ok(change) = changes.try_recv() {
        // As it would come from elsewhere.
        let sent = serde_json::to_string(&change).unwrap();
        copy.apply(serde_json::from_str(&sent).unwrap()).unwrap();
    }
    assert_eq!(seen(&copy, OURS), seen(&cache, OURS));
    assert_eq!(copy.subscribe().0.sequence, cache.subscribe().0.sequence);
}

#[test]
fn what_is_as_it_was_is_no_change() {
    let cache = StatusCache::default();
    let status = running("i1", OURS);
    cache.set(status.clone());
    let (before, mut changes) = cache.subscribe();
    cache.set(status);
    cache.remove(&id("i9"));
    assert!(changes.try_recv().is_err());
    assert_eq!(cache.subscribe().0.sequence, before.sequence);
}

#[test]
fn a_copy_notices_that_a_change_is_missing_and_passes_over_what_it_has() {
    let cache = StatusCache::default();
    let (_, mut changes) = cache.subscribe();
    for name in ["i1", "i2", "i3"] {
        cache.set(running(name, OURS));
    }
    let [first, second, third] = [(); 3].map(|()| changes.try_recv().unwrap());
    let copy = StatusCache::default();
    copy.apply(first.clone()).unwrap();
    let (expected, got) = (second.sequence, third.sequence);
    let missing = MissingChange { expected, got };
    assert_eq!(copy.apply(third.clone()), Err(missing));
    assert_eq!(seen(&copy, OURS).len(), 1, "nothing was changed");
    copy.apply(second).unwrap();
    copy.apply(first).unwrap();
    copy.apply(third).unwrap();
    assert_eq!(seen(&copy, OURS), seen(&cache, OURS));
}

fn with_token(id: &str, token: Option<&str>) -> SandboxStatus {
    let mut status = running(id, OURS);
    Arc::make_mut(&mut status.spec).access_token = token.map(soulbox_types::Secret::new);
    status
}

#[test]
fn a_token_finds_its_sandbox_for_as_long_as_it_is_its_token() {
    let cache = StatusCache::default();
    let found = |token: &str| {
        let status = cache.of_access_token(token);
        status.map(|status| status.spec.id.to_string())
    };
    cache.set(with_token("i1", Some("one")));
    cache.set(with_token("i2", Some("two")));
    cache.set(with_token("i3", None));
    assert_eq!(found("one").as_deref(), Some("i1"));
    assert_eq!(found("two").as_deref(), Some("i2"));
    for wrong in ["", "on", "One", "three", &"x".repeat(100_000)] {
        assert_eq!(found(wrong), None);
    }

    // Handed over to somebody else: the token before opens nothing any more.
    cache.set(with_token("i1", Some("new")));
    assert_eq!((found("one"), found("new").as_deref()), (None, Some("i1")));
    cache.set(with_token("i1", None));
    assert_eq!(found("new"), None);

    // The row of the last one moves when another goes.
    cache.set(with_token("i3", Some("three")));
    cache.remove(&id("i2"));
    assert_eq!(
        (found("two"), found("three").as_deref()),
        (None, Some("i3"))
    );
}
