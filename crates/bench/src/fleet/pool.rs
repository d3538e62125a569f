//! Waiting until the warm pool of a server of our own is full: as its folder shows.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::folders::waiting;
use crate::Failure;

const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// What a server does after its answer (slots, records) should not be in the next round.
pub(crate) const SETTLE: Duration = Duration::from_millis(20);
/// A pool that makes no progress for so long wants to be asked for.
const STALLED: Duration = Duration::from_secs(2);

/// Returns how many wait when so many do, or when no more come.
pub(crate) async fn filled(data: &Path, wanted: usize) -> Result<(), Stalled> {
    let (mut seen, mut since) = (waiting(data).await, Instant::now());
    while seen < wanted {
        if since.elapsed() > STALLED {
            return Err(Stalled { seen, wanted });
        }
        sleep(LOOK_AGAIN).await;
        let now = waiting(data).await;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    sleep(SETTLE).await;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) seen: usize,
    wanted: usize,
}

impl From<Stalled> for Failure {
    fn from(stalled: Stalled) -> Self {
        let Stalled { seen, wanted } = stalled;
        Self(format!(
            "the warm pool does not fill: {seen} of {wanted} wait"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pool_of_those_whose_folders_say_so_is_full() {
        let data = tempfile::tempdir().unwrap();
        for (name, file) in [
            ("i1", "warm.json"),
            ("i2", "running.json"),
            ("i3", "warm.json"),
        ] {
            let folder = data.path().join("sandboxes").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), "{}").unwrap();
        }
        assert_eq!(filled(data.path(), 2).await, Ok(()));
    }

    #[tokio::test]
    async fn a_pool_that_does_not_grow_is_told() {
        let data = tempfile::tempdir().unwrap();
        let failure = Failure::from(filled(data.path(), 1).await.unwrap_err());
        assert_eq!(failure.0, "the warm pool does not fill: 0 of 1 wait");
    }
}
