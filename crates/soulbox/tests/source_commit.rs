//! The build knows the commit in every shape that git gives a checkout, as git itself tells it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "../build/source_commit.rs"]
mod source_commit;

use std::{fs, path::Path, process::Command};

use source_commit::find;

fn git(folder: &Path, words: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(words)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "git {words:?}: {said}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn commit(folder: &Path) -> String {
    git(folder, &["commit", "-q", "--allow-empty", "-m", "more"]);
    git(folder, &["rev-parse", "--short=12", "HEAD"])
}

/// What is found, and that cargo will look again when it changes.
fn found(folder: &Path) -> Option<String> {
    let found = find(folder)?;
    let missing = found.changes_with.iter().find(|file| !file.exists());
    assert_eq!(missing, None, "it would be built anew each time");
    Some(found.commit)
}

fn checkout() -> Option<tempfile::TempDir> {
    if Command::new("git").arg("--version").output().is_err() {
        println!("skipped: git is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q", "-b", "main"]);
    Some(folder)
}

#[test]
fn a_branch_is_followed_loose_and_packed() {
    let Some(folder) = checkout() else { return };
    let source = folder.path();
    assert_eq!(found(source), None, "there is no commit yet");
    let first = commit(source);
    assert_eq!(found(source), Some(first.clone()));
    git(source, &["pack-refs", "--all"]);
    assert!(!source.join(".git/refs/heads/main").exists());
    assert_eq!(found(source), Some(first.clone()));
    let second = commit(source);
    assert_ne!(second, first);
    assert_eq!(found(source), Some(second));
    git(source, &["checkout", "-q", "--detach", &first]);
    assert_eq!(found(source), Some(first));
}

#[test]
fn a_packed_branch_is_looked_at_again_when_its_folder_changes() {
    let Some(folder) = checkout() else { return };
    let source = folder.path();
    git(source, &["checkout", "-q", "-b", "some/branch"]);
    commit(source);
    git(source, &["pack-refs", "--all"]);
    let packed = find(source).unwrap();
    let new = commit(source);
    let loose = source.join(".git/refs/heads/some/branch");
    assert!(
        packed
            .changes_with
            .iter()
            .any(|file| loose.starts_with(file))
    );
    assert_eq!(found(source), Some(new));
}

#[test]
fn a_worktree_has_a_commit_of_its_own() {
    let Some(folder) = checkout() else { return };
    let (source, beside) = (folder.path().join("a"), folder.path().join("b"));
    fs::create_dir(&source).unwrap();
    git(&source, &["init", "-q", "-b", "main"]);
    let first = commit(&source);
    let path = beside.to_str().unwrap();
    git(&source, &["worktree", "add", "-q", "-b", "other", path]);
    let second = commit(&beside);
    assert_eq!(found(&source), Some(first));
    assert_eq!(found(&beside), Some(second));
}

#[test]
fn an_unpacked_archive_has_none_even_inside_another_checkout() {
    let Some(folder) = checkout() else { return };
    commit(folder.path());
    let unpacked = folder.path().join("soulbox-0.1.0");
    fs::create_dir(&unpacked).unwrap();
    assert_eq!(found(&unpacked), None);
}
