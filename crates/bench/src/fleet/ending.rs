//! Ends all sandboxes of a server: for as long as their number falls.
//!
//! Thousands take minutes, and a process that outlives its server's folder has no owner.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use soulbox_client::{Client, Config, config::Flags};
use tokio::time::sleep;

use super::folders::{living, running};

/// How long a server goes on although no sandbox ends.
const STALLED: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const ENDED_AT_ONCE: usize = 16;

/// Detects that a number no longer falls.
#[derive(Debug)]
pub(crate) struct StallDetector {
    limit: Duration,
    least: usize,
    since: Instant,
}

impl StallDetector {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            least: usize::MAX,
            since: Instant::now(),
        }
    }

    pub(crate) fn is_progressing(&mut self, left: usize) -> bool {
        if left < self.least {
            (self.least, self.since) = (left, Instant::now());
        }
        self.since.elapsed() < self.limit
    }
}

/// Ends every sandbox of the server on this folder, for [`super::SERVER_COMMAND`]. Gives up when
/// none has ended for a minute.
pub async fn end_all(data: &Path) {
    tokio::select! {
        () = kill_all(data) => {}
        () = stalled(data, STALLED, |_| {}) => {}
    }
}

/// How many sandboxes have processes, those that wait for users among them.
pub async fn left(data: &Path) -> usize {
    running(data).await
}

/// Returns when the number of a server's sandboxes has not fallen for so long; reports it meanwhile.
pub(super) async fn stalled(data: &Path, limit: Duration, mut report: impl FnMut(usize)) {
    let mut stall = StallDetector::new(limit);
    loop {
        let left = living(data).await;
        report(left);
        if !stall.is_progressing(left) {
            return;
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn kill_all(data: &Path) {
    let flags = Flags {
        data_dir: Some(data.to_owned()),
        ..Flags::default()
    };
    loop {
        // Without a key it has not come so far that there could be sandboxes. Read each time: a
        // second start has another address.
        let Ok(config) = Config::resolve(&flags, |_| None) else {
            return;
        };
        let client = Client::new(&config, None);
        let listed = client.list().await;
        if listed.as_ref().is_ok_and(Vec::is_empty) && living(data).await == 0 {
            return;
        }
        stream::iter(listed.unwrap_or_default())
            .for_each_concurrent(ENDED_AT_ONCE, async |sandbox| {
                // Whatever could not be ended is in the next list.
                client.kill(&sandbox.id).await.ok();
            })
            .await;
        sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn patience_lasts_while_the_number_falls() {
        let limit = Duration::from_mins(1);
        let mut stall = StallDetector::new(limit);
        assert!(stall.is_progressing(3));
        stall.since -= limit;
        assert!(stall.is_progressing(2), "it fell");
        stall.since -= limit;
        assert!(!stall.is_progressing(2));
        assert!(!stall.is_progressing(3), "it grew");
    }

    #[tokio::test]
    async fn a_crowd_that_does_not_end_is_given_up_and_counted() {
        let data = tempfile::tempdir().unwrap();
        for name in ["i1", "i2"] {
            let folder = data.path().join("sandboxes").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("running.json"), "{}").unwrap();
        }
        let mut report = Vec::new();
        stalled(data.path(), Duration::from_millis(1), |left| {
            report.push(left);
        })
        .await;
        assert!(!report.is_empty() && report.iter().all(|left| *left == 2));
        assert_eq!(left(data.path()).await, 2);
    }

    #[tokio::test]
    async fn a_server_without_a_key_has_nothing_to_end() {
        end_all(tempfile::tempdir().unwrap().path()).await;
    }
}
