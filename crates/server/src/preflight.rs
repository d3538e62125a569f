//! Whether this machine can run sandboxes at all, checked before anything is started.

use std::path::Path;

use anyhow::bail;
use soulbox_doctor::Problem;

use crate::trial;

pub(crate) async fn preflight(data_dir: &Path, min_free_disk: u64) -> anyhow::Result<()> {
    trial::clear_up(data_dir).await;
    let dir = data_dir.to_owned();
    let (found, free_space) = tokio::task::spawn_blocking(move || {
        let free_space = soulbox_doctor::free_space(&dir, min_free_disk);
        (soulbox_doctor::preflight(&dir), free_space)
    })
    .await?;
    judge(found, has_sandboxes(data_dir))?;
    judge_free_space(free_space, keeps_something(data_dir))
}

fn judge(found: Result<(), Vec<Problem>>, has_sandboxes: bool) -> anyhow::Result<()> {
    let Err(problems) = found else {
        return Ok(());
    };
    if has_sandboxes {
        // They were started here, so it can work; without a server they cannot be reached or ended.
        for problem in problems {
            tracing::warn!("new sandboxes may fail: {problem}");
        }
        return Ok(());
    }
    if let [problem] = problems.as_slice() {
        bail!("sandboxes cannot run on this machine yet. {problem}");
    }
    for problem in &problems {
        tracing::error!("sandboxes cannot run on this machine yet. {problem}");
    }
    bail!(
        "{} things are missing on this machine (see above; `soulbox doctor` shows every check)",
        problems.len()
    )
}

/// A server that cannot create sandboxes is not ready. If it keeps something, it is needed all the
/// same: to reach that, and to free space by removing it.
fn judge_free_space(free_space: Result<(), Problem>, keeps_something: bool) -> anyhow::Result<()> {
    match free_space {
        Err(problem) if keeps_something => {
            tracing::warn!("new sandboxes will be refused. {problem}");
            Ok(())
        }
        Err(problem) => bail!("sandboxes cannot run on this machine yet. {problem}"),
        Ok(()) => Ok(()),
    }
}

/// Whether users have created anything: it can only be removed through the server.
pub(crate) fn keeps_something(data_dir: &Path) -> bool {
    let has_entries = |folder: &str| {
        std::fs::read_dir(data_dir.join(folder)).is_ok_and(|mut entries| entries.next().is_some())
    };
    let kept = ["snapshots", "templates/builds", "volumes"];
    has_sandboxes(data_dir) || kept.into_iter().any(has_entries)
}

/// Of users, including those that can only be recovered, but not the trial sandbox of a killed start.
pub(crate) fn has_sandboxes(data_dir: &Path) -> bool {
    let quarantined = std::fs::read_dir(data_dir.join("quarantine"))
        .is_ok_and(|mut folders| folders.next().is_some());
    let made = std::fs::read_dir(data_dir.join("sandboxes")).is_ok_and(|mut folders| {
        folders.any(|folder| folder.is_ok_and(|folder| folder.path().join("spec.json").exists()))
    });
    made || quarantined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(what: &str) -> Problem {
        Problem {
            what: what.to_owned(),
            advice: "mend it".to_owned(),
        }
    }

    #[test]
    fn a_problem_refuses_the_start_and_says_what_to_do() {
        let error = judge(Err(vec![problem("kernel: Linux 4.4")]), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("kernel: Linux 4.4") && error.contains("mend it"),
            "{error}"
        );
        let several = judge(Err(vec![problem("a"), problem("b")]), false).unwrap_err();
        assert!(several.to_string().contains("soulbox doctor"), "{several}");
    }

    #[test]
    fn what_a_killed_trial_left_is_no_sandbox() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_sandboxes(folder.path()));
        let trial = folder.path().join("sandboxes/i0");
        std::fs::create_dir_all(trial.join("root")).unwrap();
        assert!(!has_sandboxes(folder.path()));
        std::fs::write(trial.join("spec.json"), "{").unwrap();
        assert!(has_sandboxes(folder.path()));
    }

    #[test]
    fn what_can_only_be_recovered_is_a_sandbox_too() {
        let folder = tempfile::tempdir().unwrap();
        let quarantine = folder.path().join("quarantine");
        std::fs::create_dir(&quarantine).unwrap();
        assert!(!has_sandboxes(folder.path()), "nothing is in it");
        std::fs::create_dir(quarantine.join("i0")).unwrap();
        assert!(has_sandboxes(folder.path()));
    }

    #[test]
    fn too_little_free_space_refuses_a_start_unless_something_is_kept_there() {
        let full = || Err(problem("/data has 7 MiB of free space"));
        let error = judge_free_space(full(), false).unwrap_err().to_string();
        assert!(
            error.contains("7 MiB") && error.contains("mend it"),
            "{error}"
        );
        assert!(judge_free_space(full(), true).is_ok() && judge_free_space(Ok(()), false).is_ok());
        for kept in ["snapshots/a", "volumes/b", "templates/builds/c"] {
            let folder = tempfile::tempdir().unwrap();
            let kept = folder.path().join(kept);
            std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
            assert!(!keeps_something(folder.path()), "{}", kept.display());
            std::fs::write(&kept, "").unwrap();
            assert!(keeps_something(folder.path()), "{}", kept.display());
        }
    }

    #[test]
    fn a_server_whose_sandboxes_run_starts_all_the_same() {
        assert!(judge(Err(vec![problem("nftables: not found")]), true).is_ok());
        assert!(judge(Ok(()), false).is_ok());
    }
}
