//! Labels the sandboxes of one run, so that they are found on a server that has others too.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{StreamExt, stream};
use soulbox_client::Client;
use tokio::time::timeout;

use super::AT_ONCE;
use crate::{Failure, fleet::StallDetector};

const NAME: &str = "soulbox-bench";
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug, Clone)]
pub(crate) struct RunLabel(Arc<str>);

impl RunLabel {
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.unwrap_or_default().as_nanos();
        Self(format!("{}-{nanos}", std::process::id()).into())
    }

    pub(super) fn metadata(&self) -> BTreeMap<String, String> {
        [(NAME.to_owned(), self.0.to_string())].into()
    }

    /// Ends every sandbox with this label, also those that are just being created, for as long as
    /// their number falls.
    pub(crate) async fn sweep(&self, client: &Client) -> Result<(), Failure> {
        let mut stall = StallDetector::new(LIMIT);
        loop {
            let listed = client.list().await?;
            let ours: Vec<String> = listed
                .into_iter()
                .filter(|one| {
                    one.metadata
                        .get(NAME)
                        .is_some_and(|label| **label == *self.0)
                })
                .map(|one| one.id)
                .collect();
            if ours.is_empty() {
                return Ok(());
            }
            if !stall.is_progressing(ours.len()) {
                return Err(Failure::new("they do not end"));
            }
            let ends = stream::iter(ours).for_each_concurrent(AT_ONCE, async |id| {
                client.kill(&id).await.ok();
            });
            // Whatever could not be ended is in the next list.
            timeout(LIMIT, ends).await.ok();
        }
    }
}
