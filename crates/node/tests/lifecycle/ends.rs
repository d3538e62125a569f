//! Why a sandbox ended is known until it is on record.

use super::*;

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
    let ends = ends_dir(folder.path());
    assert_eq!(folders(&ends), 1, "the folder of logs, and nothing else");
    assert_eq!(folders(&ends.join("logs")), 0, "nor a log");
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
