//! The limit of open files: raised as far as it goes, and refused when even that is too low. A server
//! without descriptors fails anywhere, with words about anything else: a database that does not
//! open, a firewall that is missing.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A server with nothing to do has 70: listeners, the database, what it keeps ready for the next
/// sandboxes. Below this the first sandboxes or clients would fail.
const LEAST: u64 = 100;

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
    fn enough_open_files_or_no_limit_at_all_let_it_start() {
        for limit in [Some(LEAST), Some(1024), None] {
            assert!(judge(limit).is_ok(), "{limit:?}");
        }
    }
}
