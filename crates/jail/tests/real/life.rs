//! A sandbox from its start to its end, and after the server's.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_lives_answers_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let running = create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    assert!(matches!(
        jail.dial(&spec.id, 1).await,
        Err(Error::PortClosed { port: 1, .. })
    ));

    let stats = jail.stats(&spec.id).await.unwrap();
    assert!(stats.memory_bytes > 0 && stats.pids >= 1);
    assert!(stats.disk_total_bytes > 32 << 20 && stats.disk_total_bytes < 64 << 20);

    jail.pause(&spec.id).await.unwrap();
    jail.resume(&spec.id).await.unwrap();
    assert!(health(&jail, &spec).await.contains("204"));

    jail.destroy(&spec.id, None).await.unwrap();
    jail.destroy(&spec.id, Some(&running)).await.unwrap();
    assert!(matches!(
        jail.dial(&spec.id, ENVD_PORT).await,
        Err(Error::SandboxNotFound(_))
    ));
    assert!(!alive(pid_of(&running)));
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_sandbox_can_be_destroyed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    jail.pause(&spec.id).await.unwrap();
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_does_all_that_a_sandbox_does_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let trial = jail.trial(&fixture.template).await.unwrap();
    let did: Vec<_> = trial.steps.iter().map(|(what, _)| *what).collect();
    assert_eq!(did, ["started", "answered", "paused", "resumed", "ended"]);
    assert!(
        fs::read_dir(fixture.path().join("sandboxes")).map_or(true, |mut all| all.next().is_none())
    );
    assert_eq!(jail.cgroups().names().unwrap(), Vec::<String>::new());
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_that_fails_names_the_step_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let mut broken = fixture.template.clone();
    broken.overlays[0]
        .lower
        .push(fixture.path().join("missing"));
    let error = jail.trial(&broken).await.unwrap_err();
    let Error::Start { step, message } = &error else {
        panic!("{error}");
    };
    assert_eq!(step, "shift ids of layer");
    assert!(message.contains("missing"), "{message}");
    assert!(
        fs::read_dir(fixture.path().join("sandboxes")).map_or(true, |mut all| all.next().is_none())
    );
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_inside_is_a_stranger_outside() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    let uid: u32 = field("Uid")
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((0x7000_0000..0x7ffe_0000).contains(&uid), "{uid:#x}");
    assert_eq!(field("Seccomp"), "2");
    let bounding = u64::from_str_radix(&field("CapBnd"), 16).unwrap();
    assert_eq!(bounding & (1 << 21), 0, "CAP_SYS_ADMIN");
    for namespace in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{namespace}")).unwrap();
        assert_ne!(of(&pid.to_string()), of("self"), "{namespace}");
    }
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_on_the_same_folder_adopts_the_sandbox() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let spec = fixture.spec();
    let running = fixture.create_in_a_server_that_dies(&spec);

    let second = fixture.jail().await;
    assert_eq!(second.adopt(&spec, &running).await.unwrap(), Adopted::Alive);
    // As when what came after it failed, and everything is tried again.
    assert_eq!(second.adopt(&spec, &running).await.unwrap(), Adopted::Alive);
    assert!(health(&second, &spec).await.contains("204"));
    second.destroy(&spec.id, Some(&running)).await.unwrap();
    assert_eq!(second.adopt(&spec, &running).await.unwrap(), Adopted::Gone);
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_keeps_is_reclaimed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let pid = pid_of(&fixture.create_in_a_server_that_dies(&fixture.spec()));
    let second = fixture.jail().await;
    second.reclaim(&[]).await.unwrap();
    assert!(!alive(pid));
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_names_the_step() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    fixture.template.overlays[0].lower = vec!["/nonexistent".into()];
    let jail = fixture.jail().await;
    let error = jail
        .create_from(&fixture.spec(), origin(Disk::Fresh))
        .await
        .unwrap_err();
    match error {
        Error::Start { step, message } => {
            assert_eq!(step, "shift ids of layer");
            assert!(message.contains("/nonexistent"), "{message}");
        }
        other => panic!("{other}"),
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_layers_are_one_root() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let bottom = fixture.template.overlays[0].lower.clone();
    for count in [10, 60, 120] {
        let layers = (0..count).map(|number| {
            let layer = fixture.path().join(format!("more/{count}/{number}"));
            fs::create_dir_all(layer.join("root")).unwrap();
            fs::write(layer.join("root/top"), number.to_string()).unwrap();
            fs::write(layer.join(format!("root/of{number}")), "").unwrap();
            layer
        });
        let lower = layers.chain(bottom.clone()).collect();
        fixture.template.overlays[0].lower = lower;
        let jail = fixture.jail().await;
        let spec = fixture.spec();
        let start = std::time::Instant::now();
        create(&jail, &spec).await;
        println!("{count} layers: {:?}", start.elapsed());
        let seen = run(&jail, &spec, "cat /root/top; ls /root/of* | wc -l").await;
        assert_eq!(seen, format!("0{count}\n"));
        jail.destroy(&spec.id, None).await.unwrap();
        // As the node does; while it is there, the next server may not choose another range.
        fs::remove_dir_all(fixture.path().join("sandboxes").join(spec.id.as_str())).unwrap();
        jail.close().await;
    }
}
