use serde::Deserialize;

use super::{Client, segment};
use crate::{
    Result,
    model::{LogEntry, Metric},
};

impl Client {
    /// Up to 1000 entries, oldest first. `since`: only those at or after this time (Unix ms);
    /// without it the newest ones.
    pub async fn logs(&self, id: &str, since: Option<i64>) -> Result<Vec<LogEntry>> {
        #[derive(Deserialize)]
        struct Page {
            logs: Vec<LogEntry>,
        }
        let query = match since {
            Some(cursor) => format!("direction=forward&cursor={cursor}"),
            None => "direction=backward".to_owned(),
        };
        let path = format!("/v2/sandboxes/{}/logs?limit=1000&{query}", segment(id));
        let mut page: Page = self.get(&path, "reading the log").await?;
        if since.is_none() {
            page.logs.reverse();
        }
        Ok(page.logs)
    }

    /// Samples over the sandbox's life, oldest first; none in its first seconds.
    pub async fn metrics(&self, id: &str) -> Result<Vec<Metric>> {
        self.get(
            &format!("/sandboxes/{}/metrics", segment(id)),
            "reading the metrics",
        )
        .await
    }
}
