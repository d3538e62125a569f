//! Deadlines, deaths, ends, and creates that fail.

use super::*;

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
