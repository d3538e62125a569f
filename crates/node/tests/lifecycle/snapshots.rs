//! Snapshots, and what builds export.

use super::*;

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
