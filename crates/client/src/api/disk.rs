use std::time::Duration;

use http::Method;
use serde_json::json;

use super::{Client, json, parse};
use crate::{
    Result,
    model::{DiskUse, Pruned},
};

/// The first time, every layer of every template is measured.
const LIMIT: Duration = Duration::from_mins(5);

impl Client {
    /// What takes room on the server's disk.
    pub async fn disk_use(&self) -> Result<DiskUse> {
        let what = "measuring the disk";
        parse(&self.call(Method::GET, "/v1/df", None, what, LIMIT).await?)
    }

    /// Frees what can be made again. `dry_run`: only says what that would be.
    pub async fn prune(&self, dry_run: bool) -> Result<Pruned> {
        let body = json(&json!({ "dryRun": dry_run }))?;
        let what = "freeing room on the disk";
        let answer = self.call(Method::POST, "/v1/prune", body, what, LIMIT);
        parse(&answer.await?)
    }
}
