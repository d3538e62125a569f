//! The node's promises, with a runtime that keeps its sandboxes in memory: what is asserted here
//! is who does what when, not the kernel. The real jail is driven by the suites under `tests/`.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use soulbox_node::{LocalNode, NodeConfig};
use soulbox_runtime::{Error, Node, NodeEvent};
use soulbox_types::{
    EndReason, Lifecycle, NetworkPolicy, OnTimeout, PauseMode, Purpose, SandboxId, SandboxSpec,
    SandboxState, TemplateId, UnixMillis,
};
use tokio::sync::Notify;

#[path = "support/machine.rs"]
mod machine;

use machine::{LONG, Machine, config, ends_dir, snapshots_dir, spec};

async fn node(folder: &Path, machine: &Arc<Machine>) -> Arc<LocalNode> {
    let config = NodeConfig {
        max_sandboxes: 3,
        ..config(folder)
    };
    machine::open(config, machine).await
}

async fn ended(
    node: &LocalNode,
    events: &mut tokio::sync::broadcast::Receiver<NodeEvent>,
) -> EndReason {
    let event = tokio::time::timeout(Duration::from_secs(10), events.recv())
        .await
        .unwrap();
    let NodeEvent::Ended { id, reason, .. } = event.unwrap() else {
        panic!("it did not end")
    };
    assert!(node.get(&id).is_none());
    reason
}

fn folders(path: &Path) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

#[tokio::test]
async fn the_node_ends_a_sandbox_at_its_deadline() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    node.create(spec(Duration::from_millis(50))).await.unwrap();
    assert_eq!(ended(&node, &mut events).await, EndReason::Expired);
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn a_deadline_can_be_moved_both_ways() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    let request = spec(LONG);
    let id = node.create(request.clone()).await.unwrap().spec.id.clone();
    let later = request.deadline.plus(LONG);
    node.set_deadline(&id, later).await.unwrap();
    assert_eq!(node.get(&id).unwrap().spec.deadline, later);
    node.set_deadline(&id, UnixMillis::now()).await.unwrap();
    assert_eq!(ended(&node, &mut events).await, EndReason::Expired);
}

#[tokio::test]
async fn network_rules_change_for_good_or_not_at_all() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let id = first.create(spec(LONG)).await.unwrap().spec.id.clone();
    let rules = NetworkPolicy {
        deny_out: vec!["203.0.113.0/24".to_owned()],
        ..NetworkPolicy::default()
    };
    first.set_network(&id, rules.clone()).await.unwrap();
    assert_eq!(machine.networks.lock().get(&id), Some(&rules));
    assert_eq!(first.get(&id).unwrap().spec.network, rules);

    *machine.fail_networks.lock() = true;
    let open = NetworkPolicy::default();
    assert!(first.set_network(&id, open.clone()).await.is_err());
    assert_eq!(first.get(&id).unwrap().spec.network, rules);
    drop(first);
    let second = node(folder.path(), &machine).await;
    assert_eq!(second.get(&id).unwrap().spec.network, rules);

    second.pause(&id, PauseMode::Memory).await.unwrap();
    assert!(matches!(
        second.set_network(&id, open).await,
        Err(Error::WrongState { .. })
    ));
}

#[tokio::test]
async fn the_death_of_a_sandbox_is_noticed() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    let id = node.create(spec(LONG)).await.unwrap().spec.id.clone();
    machine.alive.lock()[&id].send_replace(true);
    assert_eq!(ended(&node, &mut events).await, EndReason::Died);
}

#[tokio::test]
async fn destroying_is_idempotent_and_leaves_nothing() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let id = node.create(spec(LONG)).await.unwrap().spec.id.clone();
    let (first, second) = tokio::join!(
        node.destroy(&id, EndReason::Killed),
        node.destroy(&id, EndReason::Killed)
    );
    first.unwrap();
    second.unwrap();
    node.destroy(&id, EndReason::Killed).await.unwrap();
    assert_eq!(machine.destroyed.lock().len(), 1);
    assert_eq!(folders(folder.path()), 0);
    assert!(matches!(
        node.dial(&id, 80).await,
        Err(Error::SandboxNotFound(_))
    ));
}

#[tokio::test]
async fn a_sandbox_killed_while_it_is_made_is_gone_afterwards() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let gate = Arc::new(Notify::new());
    *machine.gate.lock() = Some(Arc::clone(&gate));
    let node = node(folder.path(), &machine).await;
    let request = spec(LONG);
    let id = request.id.clone();
    let creating = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.create(request).await.map(drop) }
    });
    while node.get(&id).is_none() {
        tokio::task::yield_now().await;
    }
    let killing = tokio::spawn({
        let (node, id) = (Arc::clone(&node), id.clone());
        async move { node.destroy(&id, EndReason::Killed).await }
    });
    while node.get(&id).is_some() {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    assert!(matches!(
        creating.await.unwrap(),
        Err(Error::SandboxNotFound(_))
    ));
    killing.await.unwrap().unwrap();
    assert!(machine.alive.lock().is_empty());
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn a_failed_create_says_why_and_leaves_nothing() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    *machine.fail_creates.lock() = true;
    let node = node(folder.path(), &machine).await;
    assert!(matches!(
        node.create(spec(LONG)).await,
        Err(Error::Start { .. })
    ));
    assert!(node.list().is_empty());
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn the_same_create_again_gets_the_same_sandbox() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = node(folder.path(), &machine).await;
    let request = spec(LONG);
    let (first, second) = tokio::join!(node.create(request.clone()), node.create(request.clone()));
    assert_eq!(first.unwrap().spec.id, second.unwrap().spec.id);
    assert_eq!(node.list().len(), 1);
}

#[tokio::test]
async fn a_full_node_refuses_and_says_when_to_come_back() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::default());
    let node = node(folder.path(), &machine).await;
    for _ in 0..3 {
        node.create(spec(LONG)).await.unwrap();
    }
    assert!(matches!(
        node.create(spec(LONG)).await,
        Err(Error::NoCapacity { .. })
    ));
}

#[tokio::test]
async fn a_new_node_adopts_what_lives_with_its_moved_deadline() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = node(folder.path(), &machine).await;
    let request = spec(LONG);
    first.create(request.clone()).await.unwrap();
    let later = request.deadline.plus(LONG);
    first.set_deadline(&request.id, later).await.unwrap();
    drop(first);

    let second = node(folder.path(), &machine).await;
    let status = second.get(&request.id).unwrap();
    assert_eq!(status.state, SandboxState::Running);
    assert_eq!(status.spec.deadline, later);
    assert_eq!(status.spec.metadata, request.metadata);
    assert_eq!(status.spec.access_token, request.access_token);
}

#[tokio::test]
async fn a_new_node_finishes_off_what_is_half_made_half_destroyed_or_dead() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let (dead, half_destroyed, half_made) = (spec(LONG), spec(LONG), spec(LONG));
    for request in [&dead, &half_destroyed, &half_made] {
        first.create(request.clone()).await.unwrap();
    }
    drop(first);
    machine.alive.lock().remove(&dead.id);
    let path = |request: &SandboxSpec, name| folder.path().join(request.id.as_str()).join(name);
    std::fs::write(
        path(&half_destroyed, "ended.json"),
        r#"{"reason":"killed"}"#,
    )
    .unwrap();
    std::fs::remove_file(path(&half_made, "running.json")).unwrap();
    std::fs::create_dir(folder.path().join(SandboxId::random().as_str())).unwrap();

    let second = node(folder.path(), &machine).await;
    assert!(second.list().is_empty());
    assert!(machine.alive.lock().is_empty());
    assert_eq!(folders(folder.path()), 0);
    let why = reasons(&second).await;
    assert_eq!(why.len(), 3, "of what had no spec nothing can be told");
    assert_eq!(why[&dead.id].0, EndReason::Died);
    assert!(
        why[&dead.id].1.contains("no server was watching"),
        "{why:?}"
    );
    assert_eq!(
        why[&half_destroyed.id].0,
        EndReason::Killed,
        "as its end began"
    );
    assert_eq!(why[&half_made.id].0, EndReason::CreateFailed);
}

async fn reasons(node: &LocalNode) -> HashMap<SandboxId, (EndReason, String)> {
    let ends = node.unrecorded_ends().await.into_iter();
    ends.map(|end| (end.spec.id.clone(), (end.reason, end.detail)))
        .collect()
}

#[tokio::test]
async fn a_restart_of_the_machine_is_told_as_that() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let (running, found) = (spec(LONG), spec(LONG));
    for request in [&running, &found] {
        first.create(request.clone()).await.unwrap();
    }
    first.pause(&found.id, PauseMode::Memory).await.unwrap();
    drop(first);
    *machine.rebooted.lock() = true;
    let disk = folder.path().join(running.id.as_str()).join("disk.img");
    std::fs::remove_file(disk).unwrap();

    let second = node(folder.path(), &machine).await;
    assert_eq!(
        second.paused(&found.id).unwrap().kept,
        PauseMode::Filesystem
    );
    let why = reasons(&second).await;
    assert_eq!(why.len(), 1);
    let told = (EndReason::Lost, "the machine was restarted".to_owned());
    assert_eq!(why[&running.id], told);
}

#[tokio::test]
async fn what_ran_when_the_machine_was_restarted_rests_on_its_files_until_its_time_is_over() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let (lasting, short, over) = (spec(LONG), spec(LONG), spec(LONG));
    for request in [&lasting, &short, &over] {
        first.create(request.clone()).await.unwrap();
    }
    let now = UnixMillis::now();
    first
        .set_deadline(&lasting.id, now.plus(LONG))
        .await
        .unwrap();
    drop(first);
    *machine.rebooted.lock() = true;
    machine.alive.lock().clear();
    let lease = |request: &SandboxSpec, at: UnixMillis| {
        let path = folder.path().join(request.id.as_str()).join("lease.json");
        std::fs::write(path, format!(r#"{{"deadline":{}}}"#, at.0)).unwrap();
    };
    lease(&over, now);
    lease(&short, now.plus(Duration::from_secs(2)));

    for _ in 0..2 {
        let again = node(folder.path(), &machine).await;
        assert_eq!(
            again.paused(&lasting.id).unwrap().kept,
            PauseMode::Filesystem
        );
        let why = reasons(&again).await;
        assert_eq!(why[&over.id].0, EndReason::Expired);
        assert!(!why.contains_key(&lasting.id), "{why:?}");
    }
    let last = node(folder.path(), &machine).await;
    let ends = async {
        while !reasons(&last).await.contains_key(&short.id) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ends)
        .await
        .unwrap();
    assert_eq!(reasons(&last).await[&short.id].0, EndReason::Expired);
    *machine.rebooted.lock() = false;
    let later = UnixMillis::now().plus(LONG);
    let restored = last
        .resume(&lasting.id, later, PauseMode::Memory)
        .await
        .unwrap();
    assert_eq!(restored, PauseMode::Filesystem);
    assert_eq!(last.get(&lasting.id).unwrap().state, SandboxState::Running);
}

#[tokio::test]
async fn why_a_sandbox_ended_is_kept_across_restarts_until_it_is_on_record() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let (killed, died) = (spec(LONG), spec(LONG));
    for request in [&killed, &died] {
        first.create(request.clone()).await.unwrap();
    }
    let mut events = first.events();
    first.destroy(&killed.id, EndReason::Killed).await.unwrap();
    assert_eq!(ended(&first, &mut events).await, EndReason::Killed);
    machine.alive.lock()[&died.id].send_replace(true);
    assert_eq!(ended(&first, &mut events).await, EndReason::Died);
    assert_eq!(folders(folder.path()), 0, "nothing else is kept");
    drop(first);

    let second = node(folder.path(), &machine).await;
    let why = reasons(&second).await;
    assert_eq!(why[&killed.id].0, EndReason::Killed);
    assert_eq!(why[&died.id], (EndReason::Died, "signal 9".to_owned()));
    second.forget_end(&killed.id).await;
    second.forget_end(&died.id).await;
    second.forget_end(&died.id).await;
    assert!(second.unrecorded_ends().await.is_empty());
    drop(second);
    let third = node(folder.path(), &machine).await;
    assert!(third.unrecorded_ends().await.is_empty());
}

#[tokio::test]
async fn why_a_sandbox_ended_is_known_although_the_disk_has_no_room_for_it() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let (one, other) = (spec(LONG), spec(LONG));
    // A folder where the file should be stands for a disk that cannot take it.
    let mut obstacles = Vec::new();
    for request in [&one, &other] {
        first.create(request.clone()).await.unwrap();
        obstacles.push(
            folder
                .path()
                .join(request.id.as_str())
                .join("ended.json.new"),
        );
        obstacles.push(ends_dir(folder.path()).join(format!("{}.new", request.id)));
    }
    for obstacle in &obstacles {
        std::fs::create_dir(obstacle).unwrap();
    }
    for request in [&one, &other] {
        first.destroy(&request.id, EndReason::Killed).await.unwrap();
    }
    let why = reasons(&first).await;
    assert_eq!(why[&one.id].0, EndReason::Killed);
    first.forget_end(&one.id).await;
    assert_eq!(reasons(&first).await.len(), 1);

    for obstacle in obstacles.iter().filter(|path| path.exists()) {
        std::fs::remove_dir(obstacle).unwrap();
    }
    assert_eq!(reasons(&first).await.len(), 1);
    drop(first);
    let second = node(folder.path(), &machine).await;
    let why = reasons(&second).await;
    assert_eq!(why.len(), 1);
    assert_eq!(why[&other.id].0, EndReason::Killed);
}

#[tokio::test]
async fn a_server_that_dies_while_it_removes_a_folder_has_told_why() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let request = spec(LONG);
    first.create(request.clone()).await.unwrap();
    let files = folder.path().join(request.id.as_str());
    let kept: Vec<_> = ["spec.json", "running.json"]
        .map(|name| (files.join(name), std::fs::read(files.join(name)).unwrap()))
        .into();
    first.destroy(&request.id, EndReason::Killed).await.unwrap();
    drop(first);
    std::fs::create_dir(&files).unwrap();
    for (path, text) in kept {
        std::fs::write(path, text).unwrap();
    }

    let second = node(folder.path(), &machine).await;
    assert_eq!(reasons(&second).await[&request.id].0, EndReason::Killed);
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn an_end_that_takes_its_time_is_known_with_its_reason() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    *machine.fail_destroys.lock() = true;
    let request = spec(Duration::from_millis(50));
    node.create(request.clone()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), async {
        while node.get(&request.id).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(reasons(&node).await[&request.id].0, EndReason::Expired);
    *machine.fail_destroys.lock() = false;
    assert_eq!(ended(&node, &mut events).await, EndReason::Expired);
    let why = reasons(&node).await;
    assert_eq!((why.len(), why[&request.id].0), (1, EndReason::Expired));
}

#[tokio::test]
async fn of_what_no_user_knew_no_end_is_kept() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut build = spec(LONG);
    build.purpose = Purpose::Build;
    node.create(build.clone()).await.unwrap();
    node.destroy(&build.id, EndReason::Killed).await.unwrap();
    *machine.fail_creates.lock() = true;
    assert!(node.create(spec(LONG)).await.is_err());
    assert!(node.unrecorded_ends().await.is_empty());
    assert_eq!(folders(&ends_dir(folder.path())), 0);
}

#[tokio::test]
async fn a_damaged_record_of_an_end_does_not_hide_the_others() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let request = spec(LONG);
    node.create(request.clone()).await.unwrap();
    node.destroy(&request.id, EndReason::Killed).await.unwrap();
    let damaged = ends_dir(folder.path()).join("damaged.json");
    std::fs::write(&damaged, "{").unwrap();
    assert_eq!(reasons(&node).await.len(), 1);
    assert!(!damaged.exists());
}

#[tokio::test]
async fn a_new_node_finishes_off_what_has_not_done_its_start_command() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let request = spec(LONG);
    first.create(request.clone()).await.unwrap();
    drop(first);
    let marker = folder.path().join(request.id.as_str()).join("unready.json");
    assert!(!marker.exists(), "without a start command there is none");
    std::fs::write(marker, "null").unwrap();

    let second = node(folder.path(), &machine).await;
    assert!(second.list().is_empty());
    assert!(machine.alive.lock().is_empty());
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn a_damaged_state_folder_does_not_stop_the_node() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = node(folder.path(), &machine).await;
    let request = spec(LONG);
    first.create(request.clone()).await.unwrap();
    drop(first);
    std::fs::write(
        folder.path().join(request.id.as_str()).join("spec.json"),
        "{",
    )
    .unwrap();
    let second = node(folder.path(), &machine).await;
    assert!(second.list().is_empty());
}

#[tokio::test]
async fn a_paused_sandbox_rests_without_a_deadline_and_wakes_with_a_new_one() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    let request = spec(Duration::from_millis(200));
    node.create(request.clone()).await.unwrap();
    node.pause(&request.id, PauseMode::Memory).await.unwrap();
    assert!(matches!(events.recv().await, Ok(NodeEvent::Paused { .. })));
    assert!(machine.frozen.lock().contains(&request.id));
    let log = node.logs(&request.id).await.unwrap();
    assert!(log.iter().any(|line| line.message.starts_with("paused")));
    assert!(matches!(
        node.dial(&request.id, 80).await,
        Err(Error::SandboxNotFound(_))
    ));
    assert!(matches!(
        node.pause(&request.id, PauseMode::Memory).await,
        Err(Error::WrongState { .. })
    ));
    // Its old deadline passes without consequence.
    while UnixMillis::now() <= request.deadline {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.get(&request.id).unwrap().state, SandboxState::Paused);

    let later = UnixMillis::now().plus(LONG);
    assert_eq!(
        node.resume(&request.id, later, PauseMode::Memory)
            .await
            .unwrap(),
        PauseMode::Memory
    );
    assert!(!machine.frozen.lock().contains(&request.id));
    let status = node.get(&request.id).unwrap();
    assert_eq!(
        (status.state, status.spec.deadline),
        (SandboxState::Running, later)
    );
    machine.alive.lock()[&request.id].send_replace(true);
    assert_eq!(ended(&node, &mut events).await, EndReason::Died);
}

#[tokio::test]
async fn a_filesystem_pause_ends_the_processes_and_resumes_from_the_disk() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let request = spec(LONG);
    node.create(request.clone()).await.unwrap();
    node.pause(&request.id, PauseMode::Filesystem)
        .await
        .unwrap();
    assert!(machine.alive.lock().is_empty());
    assert_eq!(
        node.paused(&request.id).unwrap().kept,
        PauseMode::Filesystem
    );
    let later = UnixMillis::now().plus(LONG);
    assert_eq!(
        node.resume(&request.id, later, PauseMode::Memory)
            .await
            .unwrap(),
        PauseMode::Filesystem
    );
    assert_eq!(machine.alive.lock().len(), 1);
    node.destroy(&request.id, EndReason::Killed).await.unwrap();
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn a_sandbox_that_asked_for_it_is_paused_at_its_deadline() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    let mut request = spec(Duration::from_millis(50));
    request.lifecycle = Lifecycle {
        on_timeout: OnTimeout::Pause(PauseMode::Memory),
        ..Lifecycle::default()
    };
    node.create(request.clone()).await.unwrap();
    assert!(matches!(events.recv().await, Ok(NodeEvent::Paused { .. })));
    assert!(machine.frozen.lock().contains(&request.id));
}

#[tokio::test]
async fn a_failed_pause_leaves_the_sandbox_running_and_watched() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut events = node.events();
    let request = spec(LONG);
    node.create(request.clone()).await.unwrap();
    *machine.fail_pauses.lock() = true;
    assert!(node.pause(&request.id, PauseMode::Memory).await.is_err());
    assert_eq!(node.get(&request.id).unwrap().state, SandboxState::Running);
    node.set_deadline(&request.id, UnixMillis::now())
        .await
        .unwrap();
    assert_eq!(ended(&node, &mut events).await, EndReason::Expired);
}

#[tokio::test]
async fn a_new_node_keeps_what_rests_at_rest_and_knows_what_a_reboot_took() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let (frozen, stopped, rebooted) = (spec(LONG), spec(LONG), spec(LONG));
    for request in [&frozen, &stopped, &rebooted] {
        first.create(request.clone()).await.unwrap();
    }
    first.pause(&frozen.id, PauseMode::Memory).await.unwrap();
    first
        .pause(&stopped.id, PauseMode::Filesystem)
        .await
        .unwrap();
    first.pause(&rebooted.id, PauseMode::Memory).await.unwrap();
    drop(first);
    machine.alive.lock().remove(&rebooted.id);

    let second = node(folder.path(), &machine).await;
    let kept = |request: &SandboxSpec| second.paused(&request.id).unwrap().kept;
    assert_eq!(kept(&frozen), PauseMode::Memory);
    assert_eq!(kept(&stopped), PauseMode::Filesystem);
    assert_eq!(kept(&rebooted), PauseMode::Filesystem);
    let later = UnixMillis::now().plus(LONG);
    for request in [&frozen, &stopped, &rebooted] {
        second
            .resume(&request.id, later, PauseMode::Memory)
            .await
            .unwrap();
        assert_eq!(
            second.get(&request.id).unwrap().state,
            SandboxState::Running
        );
    }
}

#[tokio::test]
async fn a_snapshot_outlives_its_source_and_the_server_and_goes_when_nobody_needs_it() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let source = spec(LONG);
    first.create(source.clone()).await.unwrap();
    let id = TemplateId::random();
    let taken = first.snapshot(&source.id, id.clone()).await.unwrap();
    assert!(taken.bytes > 0 && !taken.checksum.is_empty());
    first.destroy(&source.id, EndReason::Killed).await.unwrap();
    drop(first);

    let second = node(folder.path(), &machine).await;
    assert_eq!(second.snapshots(), [taken]);
    let mut child = spec(LONG);
    child.snapshot = Some(id.clone());
    second.create(child.clone()).await.unwrap();
    let upper = TemplateId::random();
    let chained = second.snapshot(&child.id, upper.clone()).await.unwrap();
    assert_eq!(chained.parents, std::slice::from_ref(&id));

    assert!(matches!(
        second.delete_snapshot(&id).await,
        Err(Error::InUse { .. })
    ));
    second.destroy(&child.id, EndReason::Killed).await.unwrap();
    assert!(matches!(
        second.delete_snapshot(&id).await,
        Err(Error::InUse { .. })
    ));
    second.delete_snapshot(&upper).await.unwrap();
    second.delete_snapshot(&id).await.unwrap();
    second.delete_snapshot(&id).await.unwrap();
    assert_eq!(folders(&snapshots_dir(folder.path())), 0);
    let mut orphan = spec(LONG);
    orphan.snapshot = Some(id);
    assert!(matches!(
        second.create(orphan).await,
        Err(Error::TemplateNotFound(_))
    ));
    std::fs::remove_dir_all(snapshots_dir(folder.path())).unwrap();
}

#[tokio::test]
async fn a_failed_snapshot_leaves_nothing_and_the_sandbox_runs_on() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let request = spec(LONG);
    node.create(request.clone()).await.unwrap();
    *machine.fail_captures.lock() = true;
    assert!(
        node.snapshot(&request.id, TemplateId::random())
            .await
            .is_err()
    );
    assert_eq!(node.get(&request.id).unwrap().state, SandboxState::Running);
    assert!(node.snapshots().is_empty());
    assert_eq!(folders(&snapshots_dir(folder.path())), 0);
    std::fs::remove_dir_all(snapshots_dir(folder.path())).unwrap();
}

#[tokio::test]
async fn a_damaged_snapshot_is_not_used() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let source = spec(LONG);
    first.create(source.clone()).await.unwrap();
    let id = TemplateId::random();
    first.snapshot(&source.id, id.clone()).await.unwrap();
    drop(first);
    let image = snapshots_dir(folder.path())
        .join(id.as_str())
        .join("disk.img");
    std::fs::write(image, "the files of a sandbox, truncated or worse").unwrap();
    let second = node(folder.path(), &machine).await;
    let mut child = spec(LONG);
    child.snapshot = Some(id);
    assert!(matches!(
        second.create(child).await,
        Err(Error::Damaged { .. })
    ));
    std::fs::remove_dir_all(snapshots_dir(folder.path())).unwrap();
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_is_kept_and_says_why_it_cannot_be_used() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let source = spec(LONG);
    first.create(source.clone()).await.unwrap();
    let image = TemplateId::random();
    first.snapshot(&source.id, image.clone()).await.unwrap();
    let request = SandboxSpec {
        snapshot: Some(image.clone()),
        ..spec(LONG)
    };
    first.create(request.clone()).await.unwrap();
    first
        .pause(&request.id, PauseMode::Filesystem)
        .await
        .unwrap();
    drop(first);
    let place = snapshots_dir(folder.path()).join(image.as_str());
    std::fs::write(place.join("manifest.json"), "").unwrap();

    let second = node(folder.path(), &machine).await;
    let later = UnixMillis::now().plus(LONG);
    let refused = second.resume(&request.id, later, PauseMode::Memory).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("its files are kept"), "{refused}");
    assert!(place.join("disk.img").exists());
    assert!(second.paused(&request.id).is_some());
}

#[tokio::test]
async fn what_runs_for_a_build_is_not_shown_and_does_not_outlive_its_server() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let first = node(folder.path(), &machine).await;
    let mut events = first.events();
    let (mut step, mut other) = (spec(LONG), spec(LONG));
    for request in [&mut step, &mut other] {
        request.purpose = Purpose::Build;
        first.create(request.clone()).await.unwrap();
        first.create(request.clone()).await.unwrap();
    }
    assert!(first.list().is_empty() && first.get(&step.id).is_none());
    assert!(first.logs(&step.id).await.is_err() && first.metrics(&step.id).is_empty());
    first.dial(&step.id, 49983).await.unwrap();

    let target = folder.path().join("layer");
    first.export(&step.id, &target).await.unwrap();
    assert!(matches!(
        first.export(&step.id, &target).await,
        Err(Error::WrongState { .. })
    ));
    first.destroy(&step.id, EndReason::Killed).await.unwrap();
    assert!(events.is_empty() && events.try_recv().is_err());
    std::fs::remove_dir(target).unwrap();
    drop(first);

    let second = node(folder.path(), &machine).await;
    assert!(second.list().is_empty() && machine.alive.lock().is_empty());
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn what_does_not_fit_on_the_disk_is_not_exported_and_says_so() {
    use std::io::Write;

    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = node(folder.path(), &machine).await;
    let mut step = spec(LONG);
    step.purpose = Purpose::Build;
    node.create(step.clone()).await.unwrap();
    let image = folder.path().join(step.id.as_str()).join("disk.img");
    let mut image = std::fs::File::create(image).unwrap();
    image.write_all(&vec![1; 1 << 20]).unwrap();
    image.sync_all().unwrap();

    // A file system with room for nothing.
    let refused = node.export(&step.id, Path::new("/proc/layer")).await;
    let Err(Error::NoCapacity { what, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(what.contains("0 MiB free"), "{what}");
    let target = folder.path().join("layer");
    node.export(&step.id, &target).await.unwrap();
    std::fs::remove_dir(target).unwrap();
}
