//! Disks: kept, captured, shared and full.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sandbox_starts_again_from_its_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    let answer = ask(&jail, &spec, "POST /files?path=/root/kept", "still here").await;
    assert!(answer.contains("200 OK"), "{answer}");
    let first_boot = boot_id(&jail, &spec).await;
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_ne!(first_boot, host.trim());
    assert_eq!(boot_id(&jail, &spec).await, first_boot);
    jail.stop(&spec.id).await.unwrap();
    assert!(!alive(pid));

    jail.create_from(&spec, origin(Disk::Existing))
        .await
        .unwrap();
    let answer = ask(&jail, &spec, "GET /files?path=/root/kept", "").await;
    assert!(answer.ends_with("still here"), "{answer}");
    assert_ne!(boot_id(&jail, &spec).await, first_boot);
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_not_started_twice_on_one_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    for disk in [Disk::Existing, Disk::Fresh] {
        let again = jail.create_from(&spec, origin(disk));
        assert!(matches!(again.await, Err(Error::InUse { .. })), "{disk:?}");
    }
    assert!(alive(pid), "the refusal ends nothing");
    drop(jail);

    // A server that does not know of it, as after a clean-up that failed.
    let jail = fixture.jail().await;
    let again = jail.create_from(&spec, origin(Disk::Existing));
    assert!(matches!(again.await, Err(Error::InUse { .. })));
    assert!(alive(pid));
    jail.stop(&spec.id).await.unwrap();
    assert!(!alive(pid));
    create_kept(&jail, &spec).await;
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_died_while_it_was_frozen_can_be_stopped_and_started_from_its_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    ask(&jail, &spec, "POST /files?path=/root/kept", "still here").await;
    jail.pause(&spec.id).await.unwrap();
    let number = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    // On cgroup v1 it dies when it is thawed.
    jail.resume(&spec.id).await.unwrap();
    jail.wait(&spec.id).await.unwrap();
    jail.stop(&spec.id).await.unwrap();
    jail.stop(&spec.id).await.unwrap();
    create_kept(&jail, &spec).await;
    let answer = ask(&jail, &spec, "GET /files?path=/root/kept", "").await;
    assert!(answer.ends_with("still here"), "{answer}");
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

async fn create_kept(jail: &Opened, spec: &SandboxSpec) {
    jail.create_from(spec, origin(Disk::Existing))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_disk_carries_files_deletions_and_owners_into_another_sandbox() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let (first, second, third) = (fixture.spec(), fixture.spec(), fixture.spec());
    create(&jail, &first).await;
    ask(&jail, &first, "POST /files?path=/root/made", "one").await;
    ask(
        &jail,
        &first,
        "POST /files?path=/home/user/mine&username=user",
        "two",
    )
    .await;

    let image = fixture.path().join("snapshot.img");
    jail.capture(&first.id, &image).await.unwrap();
    ask(
        &jail,
        &first,
        "POST /files?path=/root/made",
        "changed later",
    )
    .await;
    let origin = |images: &[&PathBuf]| Origin {
        disk: Disk::Fresh,
        snapshots: images.iter().map(|i| (*i).clone()).collect(),
    };
    jail.create_from(&second, origin(&[&image])).await.unwrap();
    let answer = ask(&jail, &second, "GET /files?path=/root/made", "").await;
    assert!(answer.ends_with("one"), "{answer}");

    // A snapshot of what stands on a snapshot: both layers count, and neither source matters.
    ask(&jail, &second, "POST /files?path=/root/made", "three").await;
    let upper = fixture.path().join("second.img");
    jail.pause(&second.id).await.unwrap();
    jail.capture(&second.id, &upper).await.unwrap();
    jail.destroy(&second.id, None).await.unwrap();
    jail.destroy(&first.id, None).await.unwrap();
    jail.create_from(&third, origin(&[&upper, &image]))
        .await
        .unwrap();
    let answer = ask(&jail, &third, "GET /files?path=/root/made", "").await;
    assert!(answer.ends_with("three"), "{answer}");
    let answer = ask(&jail, &third, "GET /files?path=/home/user/mine", "").await;
    assert!(answer.ends_with("two"), "{answer}");
    let body = r#"{"path":"/home/user/mine"}"#;
    let stat = ask_json(&jail, &third, "POST /filesystem.Filesystem/Stat", body).await;
    assert!(stat.contains(r#""owner":"user""#), "{stat}");
    jail.destroy(&third.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_shared_by_its_place_and_never_by_a_link() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let folder = fixture.path().join("volumes/v/mnt");
    fs::create_dir_all(&folder).unwrap();
    let volume = |path: &str| soulbox_types::VolumeMount {
        volume: "v".to_owned(),
        name: "v".to_owned(),
        path: path.to_owned(),
    };
    let mut spec = fixture.spec();
    spec.volumes = vec![volume("/mnt/deep/data")];
    create(&jail, &spec).await;
    let answer = ask(&jail, &spec, "POST /files?path=/mnt/deep/data/f", "shared").await;
    assert!(answer.contains("200 OK"), "{answer}");
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "shared");

    // What a sandbox left behind must not lead the next start over its own /proc.
    let body = r#"{"process":{"cmd":"/bin/ln","args":["-s","/proc","/mnt/p"]}}"#;
    let mut frame = vec![0];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    let frame = String::from_utf8(frame).unwrap() + body;
    let answer = ask_as(
        &jail,
        &spec,
        "POST /process.Process/Start",
        "application/connect+json",
        &frame,
    )
    .await;
    assert!(answer.contains("exit status 0"), "{answer}");
    jail.stop(&spec.id).await.unwrap();
    spec.volumes = vec![volume("/mnt/p/sys")];
    let refused = jail.create_from(&spec, origin(Disk::Existing));
    match refused.await {
        Err(Error::Start { step, .. }) => assert_eq!(step, "place of volume"),
        other => panic!("{other:?}"),
    }
    jail.close().await;
}

/// A file system with next to no room, gone when this is.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(path: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        assert!(mount.arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg(&self.0).status();
        assert!(unmounted.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_disk_has_cost_is_told_by_the_next_pause_and_snapshot() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let host = Tiny::mount(fixture.path().join("sandboxes"), "size=24m");
    let spec = fixture.spec();
    create(&jail, &spec).await;
    jail.pause(&spec.id).await.unwrap();
    jail.resume(&spec.id).await.unwrap();
    let script = "head -c 60000000 /dev/urandom > /root/big; sync /root/big && echo kept || true";
    let said = run(&jail, &spec, script).await;
    assert!(!said.contains("kept"), "{said}");
    for attempt in [
        jail.pause(&spec.id).await,
        jail.stop(&spec.id).await,
        jail.capture(&spec.id, &fixture.path().join("image")).await,
    ] {
        let error = attempt.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("copy out what you need"));
    }
    // It runs on, so that what can be read can be copied.
    assert!(jail.stats(&spec.id).await.unwrap().pids > 0);
    jail.destroy(&spec.id, None).await.unwrap();
    drop(host);
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_or_its_inodes_that_run_out_are_told_as_that_and_leave_nothing_behind() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    for (name, options, script) in [
        (
            "bytes",
            "size=1m",
            "head -c 4000000 /dev/zero | tr '\\0' x > /root/big",
        ),
        ("files", "nr_inodes=20", "cd /root; touch $(seq 100)"),
    ] {
        let tiny = Tiny::mount(fixture.path().join(name), options);
        let spec = fixture.spec();
        create(&jail, &spec).await;
        run(&jail, &spec, script).await;
        let target = tiny.0.join("exported");
        let error = jail.export(&spec.id, &target).await.unwrap_err();
        assert!(matches!(error, Error::NoCapacity { .. }), "{error:?}");
        assert!(error.to_string().contains("is full"), "{error}");
        assert!(!target.exists());
        jail.destroy(&spec.id, None).await.unwrap();
    }
    jail.close().await;
}
