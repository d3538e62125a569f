//! Whether envd inside a sandbox answers.

use std::time::Duration;

use soulbox_types::{ENVD_PORT, SandboxId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Control;

const HEALTH_LIMIT: Duration = Duration::from_secs(5);
const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// `HTTP/1.1 2`: any success will do.
const SUCCESS: &[u8; 10] = b"HTTP/1.1 2";

impl Control {
    pub(crate) async fn guest_answers(&self, id: &SandboxId) -> bool {
        let asked = async {
            let mut stream = self.node.dial(id, ENVD_PORT).await.ok()?;
            stream.write_all(REQUEST).await.ok()?;
            let mut start = [0_u8; SUCCESS.len()];
            stream.read_exact(&mut start).await.ok()?;
            Some(start == *SUCCESS)
        };
        matches!(
            tokio::time::timeout(HEALTH_LIMIT, asked).await,
            Ok(Some(true))
        )
    }
}
