//! Pause and resume.

use super::*;

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
