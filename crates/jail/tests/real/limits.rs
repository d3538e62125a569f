//! Limits of cpu, memory and what the kernel counts per user.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_per_user_is_counted_per_sandbox() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).unwrap();
    let owner = soulbox_sys::namespace_owner(&namespace).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap();
    assert_eq!(uid.split_whitespace().next().unwrap(), owner.to_string());

    // And nothing of the host is open in envd: only pipes, sockets and its own root's files.
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        // One that was closed meanwhile is no file of the host's.
        let Ok(target) = fs::read_link(descriptor.unwrap().path()) else {
            continue;
        };
        assert!(!target.starts_with(fixture.path()), "{}", target.display());
    }
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_it_runs_and_never_below_what_is_in_use() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let mut limits = Limits {
        cpu_millis: 500,
        memory_mib: 256,
        pids: 100,
        ..spec.limits
    };
    jail.set_limits(&spec.id, &limits).await.unwrap();
    // More than the old limit allowed. In memory that cannot be reclaimed.
    run(&jail, &spec, "head -c 60M /dev/zero > /dev/shm/held").await;
    limits.memory_mib = 32;
    match jail.set_limits(&spec.id, &limits).await {
        Err(Error::InUse { what, .. }) => assert!(what.contains("32 MiB"), "{what}"),
        other => panic!("{other:?}"),
    }
    let stats = jail.stats(&spec.id).await.unwrap();
    assert_eq!(stats.oom_kills, 0);
    assert!(health(&jail, &spec).await.contains("204"));
    run(&jail, &spec, "rm /dev/shm/held").await;
    limits.memory_mib = 64;
    jail.set_limits(&spec.id, &limits).await.unwrap();
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

/// Period and quota in microseconds, and the share that 100 stands for the usual of.
fn cpu_of(jail: &Opened, id: &soulbox_types::SandboxId) -> (u64, u64, u64) {
    let view = jail.cgroups().existing(id.as_str()).view();
    let (dir, _) = view
        .iter()
        .find(|(_, inside)| ["", "cpu"].contains(&inside.to_str().unwrap()))
        .unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    if let Some(max) = read("cpu.max") {
        let (quota, period) = max.split_once(' ').unwrap();
        let weight = read("cpu.weight").unwrap();
        return (number(period), number(quota), number(&weight));
    }
    let [period, quota, shares] = ["cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"]
        .map(|file| number(&read(file).unwrap()));
    (period, quota, (shares * 100).div_ceil(1024))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_nobody_waits_for_yields_until_it_has_an_owner() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let refill = soulbox_runtime::Refill::of_this_machine();
    // In a slot that was prepared with a user's limits, and in one of its own.
    let ahead = spec_with(&fixture, reserve(&jail).await);
    for spec in [ahead, fixture.spec()] {
        let spec = SandboxSpec {
            purpose: soulbox_types::Purpose::Warm,
            limits: Limits {
                cpu_millis: 4000,
                ..spec.limits
            },
            ..spec
        };
        create(&jail, &spec).await;
        let quota = |millis: u32| u64::from(millis) * 100;
        let capped = quota(refill.cpu_millis.min(spec.limits.cpu_millis));
        let weight = u64::from(soulbox_runtime::Refill::CPU_WEIGHT);
        assert_eq!(cpu_of(&jail, &spec.id), (100_000, capped, weight));
        jail.set_limits(&spec.id, &spec.limits).await.unwrap();
        let full = quota(spec.limits.cpu_millis);
        assert_eq!(cpu_of(&jail, &spec.id), (100_000, full, 100));
        jail.destroy(&spec.id, None).await.unwrap();
        let gone = jail.set_limits(&spec.id, &spec.limits).await;
        assert!(matches!(gone, Err(Error::SandboxNotFound(_))), "{gone:?}");
    }
    // Those that are made ahead are for users.
    let next = reserve(&jail).await;
    assert_eq!(cpu_of(&jail, &next).2, 100);
    jail.close().await;
}
