//! What a new node makes of what it finds.

use super::*;

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
