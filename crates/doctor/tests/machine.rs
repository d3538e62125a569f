//! On this machine, whatever it can do. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use soulbox_doctor::{Outcome, Report};

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_soulbox-doctor"))
        .args(arguments)
        .output()
        .unwrap()
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: not root");
    }
    root
}

/// What the doctor could forget to undo, told by its mark: others work on this machine too.
fn traces() -> Vec<String> {
    let mut traces = Vec::new();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    traces.extend(
        mounts
            .lines()
            .filter(|line| line.contains(MARK))
            .map(ToOwned::to_owned),
    );
    for block in std::fs::read_dir("/sys/block").unwrap().flatten() {
        let file = std::fs::read_to_string(block.path().join("loop/backing_file"));
        traces.extend(file.ok().filter(|file| file.contains(MARK)));
    }
    for link in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
        traces.extend(
            link.file_name()
                .into_string()
                .ok()
                .filter(|name| name.starts_with("doctor")),
        );
    }
    for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        let groups = std::fs::read_dir(controller.path())
            .into_iter()
            .flatten()
            .flatten();
        let names = groups.filter_map(|group| group.file_name().into_string().ok());
        traces.extend(names.filter(|name| name.starts_with("soulbox-doctor-")));
    }
    traces
}

/// How the doctor names its scratch directories.
const MARK: &str = ".soulbox-doctor-";

#[test]
fn every_check_has_an_answer_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = doctor(&[path, "--json"]);
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{}", report.render());
    assert_eq!(report.tiers.len(), 4);
    for check in &report.checks {
        assert!(!check.detail.is_empty(), "{check:?}");
        assert!(
            check.outcome != Outcome::Fail || check.advice.is_some(),
            "{check:?}"
        );
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let start = Instant::now();
    // The kernel takes a loop device away a moment after its last user.
    while !traces().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", traces());
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_that_does_not_exist_yet_is_fine() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("not/yet");
    let start = Instant::now();
    let output = doctor(&["preflight", path.to_str().unwrap()]);
    eprintln!("preflight took {} ms", start.elapsed().as_millis());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(!path.exists());
}

/// As nobody, who may not see the folder that this program is in.
fn unprivileged_doctor(arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let program = dir.path().join("doctor");
    std::fs::copy(env!("CARGO_BIN_EXE_soulbox-doctor"), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn without_root_the_refusal_says_what_to_do() {
    if !is_root() {
        return;
    }
    let output = unprivileged_doctor(&["preflight", "/tmp"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success());
    assert!(text.contains("run it as root"), "{text}");
}

#[test]
fn without_root_it_says_so_once_and_guesses_nothing() {
    if !is_root() {
        return;
    }
    let output = unprivileged_doctor(&["/tmp", "--json"]);
    assert!(!output.status.success());
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let text = report.render();
    assert!(report.checks[0].detail.contains("uid 65534"), "{text}");
    assert_eq!(text.matches("run it as root").count(), 1, "{text}");
    assert!(report.tiers.iter().all(|tier| !tier.available), "{text}");
    for id in [
        "namespaces",
        "disk",
        "cgroups",
        "network",
        "runsc",
        "docker",
    ] {
        let check = report.check(id).unwrap();
        assert_eq!(check.outcome, Outcome::Unknown, "{text}");
        assert_eq!(
            (check.detail.as_str(), &check.advice),
            ("unknown: needs root", &None)
        );
    }
    assert_eq!(
        report.check("kernel").unwrap().outcome,
        Outcome::Ok,
        "{text}"
    );
}

#[test]
fn a_probe_on_its_own_refuses() {
    let output = doctor(&["doctor-probe", "namespaces"]);
    assert!(!output.status.success());
    assert!(Path::new("/proc/self/ns/mnt").exists());
}
