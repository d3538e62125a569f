//! Whether this machine can run sandboxes at all, asked before anything is started.

use std::path::Path;

use anyhow::bail;
use soulbox_doctor::Problem;

pub(crate) async fn preflight(data_dir: &Path, min_free_disk: u64) -> anyhow::Result<()> {
    warn_of_a_full_disk(data_dir, min_free_disk);
    let dir = data_dir.to_owned();
    let found = tokio::task::spawn_blocking(move || soulbox_doctor::preflight(&dir)).await?;
    judge(found, has_sandboxes(data_dir))
}

fn judge(found: Result<(), Vec<Problem>>, has_sandboxes: bool) -> anyhow::Result<()> {
    let Err(problems) = found else {
        return Ok(());
    };
    if has_sandboxes {
        // They were started here, so it can work; without us nobody reaches or ends them.
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

/// Not a reason to refuse the start: sandboxes that are there go on, new ones are refused.
fn warn_of_a_full_disk(data_dir: &Path, min_free_disk: u64) {
    let free = rustix::fs::statvfs(data_dir)
        .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < min_free_disk {
        tracing::warn!(
            "{} has {} MiB of free space: no new sandboxes below {} MiB (--min-free-disk-mb)",
            data_dir.display(),
            free >> 20,
            min_free_disk >> 20
        );
    }
}

/// Somebody's: what a killed start has left of its trial is none.
pub(crate) fn has_sandboxes(data_dir: &Path) -> bool {
    std::fs::read_dir(data_dir.join("sandboxes")).is_ok_and(|mut folders| {
        folders.any(|folder| folder.is_ok_and(|folder| folder.path().join("spec.json").exists()))
    })
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
    fn a_server_whose_sandboxes_run_starts_all_the_same() {
        assert!(judge(Err(vec![problem("nftables: not found")]), true).is_ok());
        assert!(judge(Ok(()), false).is_ok());
    }
}
