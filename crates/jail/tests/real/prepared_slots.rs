//! Slots that are prepared before anybody asks.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_takes_the_prepared_slot_of_its_id() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    assert!(jail.reserve().is_none(), "not before the past is cleared");
    jail.reclaim(&[]).await.unwrap();
    let id = reserve(&jail).await;
    let group = jail.cgroups().existing(id.as_str());
    let waiting = group.pids().unwrap();
    assert_eq!(waiting.len(), 1, "an init waits in its group");
    let spec = spec_with(&fixture, id);
    create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    assert!(!alive(u64::from(waiting[0])), "it has done its work");
    let next = reserve(&jail).await;
    assert_ne!(next, spec.id);
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
    assert!(!group.exists());
    assert!(!jail.cgroups().existing(next.as_str()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_slot_whose_init_died_is_made_again() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let id = reserve(&jail).await;
    let group = jail.cgroups().existing(id.as_str());
    let waiting = u64::from(group.pids().unwrap()[0]);
    group.kill_all().unwrap();
    dead(waiting).await;
    let spec = spec_with(&fixture, id);
    create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_slot_whose_init_died_does_not_wait_for_anybody() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let groups = || {
        let names = jail.cgroups().names().unwrap().into_iter();
        let groups = names.map(|name| jail.cgroups().existing(&name));
        groups
            .filter(|group| group.pids().is_ok_and(|pids| pids.len() == 1))
            .collect::<Vec<_>>()
    };
    let replaced = tokio::time::timeout(Duration::from_mins(1), async {
        while groups().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let first = groups().remove(0);
        first.kill_all().unwrap();
        while first.exists() || groups().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    replaced.await.unwrap();
    jail.close().await;
    assert!(groups().is_empty());
}

/// Killed after it was found alive, before it has read what it is to become.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_slot_whose_init_dies_at_the_last_moment_is_made_again() {
    const FREEZING: Duration = Duration::from_secs(10);
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let id = reserve(&jail).await;
    let group = jail.cgroups().existing(id.as_str());
    let waiting = group.pids().unwrap()[0];
    let specs = fs::File::open(format!("/proc/{waiting}/fd/0")).unwrap();
    group.freeze(FREEZING).unwrap();
    let spec = spec_with(&fixture, id);
    let kill = async {
        while rustix::io::ioctl_fionread(&specs).unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let pid = rustix::process::Pid::from_raw(waiting.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        group.thaw(FREEZING).unwrap();
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(create(&jail, &spec), kill)
    })
    .await
    .unwrap();
    assert!(health(&jail, &spec).await.contains("204"));
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_slots_take_no_network_slot_from_sandboxes() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail_for(4).await;
    jail.reclaim(&[]).await.unwrap();
    let _reserved = reserve(&jail).await;
    let specs: Vec<_> = (0..4).map(|_| fixture.spec()).collect();
    for spec in &specs {
        create(&jail, spec).await;
    }
    for spec in &specs {
        jail.destroy(&spec.id, None).await.unwrap();
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_reserved_once_and_one_that_is_refused_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let mut reserved = Vec::new();
    for _ in 0..4 {
        let id = reserve(&jail).await;
        assert!(!reserved.contains(&id), "{id} was given out before");
        // No more than are wanted, whatever became of those that were reserved.
        assert!(jail.reserve().is_none());
        jail.release(&id);
        let group = jail.cgroups().existing(id.as_str());
        let gone = tokio::time::timeout(Duration::from_secs(30), async {
            while group.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        gone.await.unwrap();
        reserved.push(id);
    }
    // Whoever comes with a released id all the same gets a slot made for them.
    let spec = spec_with(&fixture, reserved.remove(0));
    create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[derive(Debug, Clone, Copy)]
enum Released {
    JustNow,
    /// Its init has ended, and its group is about to go.
    WhileItIsRemoved,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_reservation_was_released_meanwhile_is_served_all_the_same() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    for moment in [Released::JustNow, Released::WhileItIsRemoved].repeat(4) {
        let id = reserve(&jail).await;
        let group = jail.cgroups().existing(id.as_str());
        let waiting = u64::from(group.pids().unwrap()[0]);
        jail.release(&id);
        jail.release(&id);
        if let Released::WhileItIsRemoved = moment {
            dead(waiting).await;
        }
        let spec = spec_with(&fixture, id);
        create(&jail, &spec).await;
        // Nothing happens to what a create has used.
        jail.release(&spec.id);
        let next = reserve(&jail).await;
        assert!(health(&jail, &spec).await.contains("204"), "{moment:?}");
        jail.release(&next);
        jail.destroy(&spec.id, None).await.unwrap();
        assert!(!group.exists());
    }
    jail.close().await;
    assert!(jail.cgroups().names().unwrap_or_default().is_empty());
}

#[test]
fn prepared_slots_of_a_server_that_died_are_reclaimed_by_the_next() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(async {
        let jail = fixture.jail().await;
        jail.reclaim(&[]).await.unwrap();
        reserve(&jail).await
    });
    // All tasks, pipes and handles of the first one are gone.
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let jail = fixture.jail().await;
        let group = jail.cgroups().existing(left.as_str());
        assert!(group.exists());
        jail.reclaim(&[]).await.unwrap();
        assert!(!group.exists());
        jail.close().await;
    });
}
