//! The alternatives, for real where the machine has them; elsewhere they say why not.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use soulbox_bench::{
    Contender, Failure,
    others::{Docker, Workspace, bare_clone, bwrap, runsc},
};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// What one leaves behind could not be told from what another still needs.
static ONE_DAEMON: Mutex<()> = Mutex::const_new(());

fn workspace() -> (TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_soulbox-bench-floor"));
    let workspace = Workspace::new(program, folder.path()).unwrap();
    (folder, workspace)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What is not there is told with a reason, which the test prints.
async fn rounds(contender: Result<Box<dyn Contender>, Failure>, least: Duration) {
    let mut contender = match contender {
        Ok(contender) => contender,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            assert!(!reason.0.is_empty());
            return;
        }
    };
    for _ in 0..3 {
        let took = contender.round().await.unwrap();
        eprintln!("{}: {took:?}", contender.name());
        assert!(took > least && took < Duration::from_secs(30), "{took:?}");
    }
}

#[tokio::test]
async fn a_bare_clone_is_timed_and_leaves_nothing() {
    let (folder, workspace) = workspace();
    rounds(bare_clone(&workspace).await, Duration::from_micros(100)).await;
    // Its tmpfs was only in its own namespace.
    let rounds = folder.path().join("floor/rounds");
    assert!(!rounds.exists() || fs::read_dir(rounds).unwrap().next().is_none());
    assert_eq!(mounts_below(folder.path()), 0);
}

#[tokio::test]
async fn bwrap_is_timed() {
    rounds(bwrap().await, Duration::from_micros(100)).await;
}

#[tokio::test]
async fn runsc_is_timed_and_takes_nothing_of_the_host() {
    let before = fs::metadata("/dev/null").unwrap();
    let (_folder, workspace) = workspace();
    rounds(runsc(&workspace).await, Duration::from_millis(1)).await;
    let after = fs::metadata("/dev/null").unwrap();
    assert_eq!((before.uid(), before.mode()), (after.uid(), after.mode()));
}

#[tokio::test]
async fn a_docker_daemon_of_our_own_works_and_is_gone_without_a_trace() {
    if !is_root() {
        eprintln!("skipped: only root can start a Docker daemon");
        return;
    }
    let _alone = ONE_DAEMON.lock().await;
    let before = traces();
    let (folder, workspace) = workspace();
    let docker = match Docker::started(&workspace).await {
        Ok(docker) => docker,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            assert_eq!(traces(), before);
            return;
        }
    };
    rounds(Ok(docker.run()), Duration::from_millis(1)).await;
    rounds(docker.exec().await, Duration::from_millis(1)).await;
    eprintln!("{}", docker.run().method());
    let burst = docker.burst(3).await.unwrap();
    eprintln!("burst of 3: {:?}", burst.wall);
    assert_eq!(burst.each.times().len(), 3);
    assert!(burst.each.times().iter().all(|took| *took <= burst.wall));
    docker.finish().await.unwrap();
    assert_eq!(traces(), before);
    assert_eq!(mounts_below(folder.path()), 0);
    assert!(!folder.path().join("docker").exists());
}

#[tokio::test]
async fn a_docker_daemon_of_our_own_ends_with_who_started_it() {
    if !is_root() {
        eprintln!("skipped: only root can start a Docker daemon");
        return;
    }
    let _alone = ONE_DAEMON.lock().await;
    let before = traces();
    let (folder, workspace) = workspace();
    match Docker::started(&workspace).await {
        // Not ended: only the pipe to it is closed, as by a kill of this process.
        Ok(docker) => drop(docker),
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    let begun = Instant::now();
    while folder.path().join("docker").exists() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(traces(), before);
}

#[tokio::test]
async fn without_a_daemon_docker_says_that_none_answers() {
    let (_folder, workspace) = workspace();
    match Docker::running(&workspace).await {
        Ok(docker) => docker.finish().await.unwrap(),
        Err(reason) => {
            let reason = reason.to_string();
            assert!(
                reason.contains("no Docker daemon answers") || reason.contains("not installed"),
                "{reason}"
            );
        }
    }
}

fn mounts_below(folder: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .filter(|line| line.contains(&*folder.to_string_lossy()))
        .count()
}

/// What daemons leave behind on a host: links, firewall rules, groups, folders.
fn traces() -> Vec<String> {
    let ours = format!("soulbox-bench-{}-", std::process::id());
    let mut all = Vec::new();
    for folder in ["/sys/class/net", "/sys/fs/cgroup", "/run"] {
        all.extend(names_in(Path::new(folder)));
    }
    for hierarchy in names_in(Path::new("/sys/fs/cgroup")) {
        all.extend(names_in(Path::new(&hierarchy)));
    }
    all.retain(|name| {
        ["docker", "containerd", &ours]
            .iter()
            .any(|s| name.contains(s))
    });
    if let Ok(rules) = Command::new("nft").args(["list", "ruleset"]).output() {
        let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
        all.extend(
            rules
                .lines()
                .filter(|l| l.contains("DOCKER"))
                .map(str::to_owned),
        );
    }
    all.sort();
    all
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path().display().to_string())
        .collect()
}
