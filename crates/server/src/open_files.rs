//! The limit of open files: raised to the maximum, and an error when even that is too low. A server
//! without descriptors fails anywhere, with misleading errors: a database that does not open, a
//! missing firewall.

use std::path::Path;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A server with nothing to do has 70: listeners, the database, what it keeps ready for the next
/// sandboxes. Below this the first sandboxes or clients would fail.
const LEAST: u64 = 100;
/// Each sandbox needs two: one for its first process, one for its network.
const PER_SANDBOX: u64 = 2;
/// While sandboxes are adopted, some files of several of them are open at a time.
const FOR_ADOPTION: u64 = 64;

/// Every stream takes two descriptors; the usual soft limit of 1024 is soon reached.
pub(crate) fn raise_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    judge(getrlimit(Resource::Nofile).current)
}

/// Before anything is changed: with too few, sandboxes of an earlier run could not be adopted.
pub(crate) fn check_for_sandboxes(folder: &Path) -> anyhow::Result<()> {
    let there = std::fs::read_dir(folder)
        .with_context(|| format!("could not list {}", folder.display()))?
        .count();
    judge_for(getrlimit(Resource::Nofile).current, there as u64)
}

fn judge_for(limit: Option<u64>, sandboxes: u64) -> anyhow::Result<()> {
    if sandboxes == 0 {
        return Ok(());
    }
    let needed = LEAST + FOR_ADOPTION + sandboxes.saturating_mul(PER_SANDBOX);
    match limit {
        Some(limit) if limit < needed => bail!(
            "the limit of open files is {limit}, and the server needs at least {needed} to take up \
             the {sandboxes} sandboxes that are there; they were left as they are. Raise it: \
             `ulimit -n 1048576` in the shell that starts the server, or LimitNOFILE=1048576 in its \
             systemd unit"
        ),
        _ => Ok(()),
    }
}

fn judge(limit: Option<u64>) -> anyhow::Result<()> {
    match limit {
        Some(limit) if limit < LEAST => bail!(
            "the limit of open files is {limit}, and the server needs at least {LEAST} (2 more for \
             each sandbox, and 1 or 2 for each connection). Raise it: `ulimit -n 1048576` in the \
             shell that starts the server, or LimitNOFILE=1048576 in its systemd unit"
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_open_files_refuse_the_start_and_the_error_says_how_to_get_more() {
        for limit in [0, 40, 64, LEAST - 1] {
            let error = judge(Some(limit)).unwrap_err().to_string();
            for part in [
                &format!("open files is {limit},"),
                "at least 100",
                "ulimit -n",
                "LimitNOFILE",
            ] {
                assert!(error.contains(part), "{part} in {error}");
            }
        }
    }

    #[test]
    fn sandboxes_that_are_there_are_counted() {
        let error = judge_for(Some(110), 70).unwrap_err().to_string();
        for part in ["is 110,", "at least 304", "70 sandboxes", "LimitNOFILE"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(judge_for(Some(303), 70).is_err());
        for (limit, sandboxes) in [(Some(304), 70), (Some(LEAST), 0), (None, 4000)] {
            assert!(judge_for(limit, sandboxes).is_ok(), "{limit:?}");
        }
    }

    #[test]
    fn enough_open_files_or_no_limit_at_all_let_it_start() {
        for limit in [Some(LEAST), Some(1024), None] {
            assert!(judge(limit).is_ok(), "{limit:?}");
        }
    }
}
