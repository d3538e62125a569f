//! Things as the server shows them, for programs.

use serde_json::Value;

use super::{Client, segment};
use crate::Result;

impl Client {
    pub async fn inspect_sandbox(&self, id: &str) -> Result<Value> {
        let path = format!("/sandboxes/{}", segment(id));
        self.get(&path, "asking for the sandbox").await
    }

    pub async fn inspect_volume(&self, id: &str) -> Result<Value> {
        let path = format!("/volumes/{}", segment(id));
        self.get(&path, "asking for the volume").await
    }
}
