//! The service, as systemd has it.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{process::Command, time::timeout};

use super::layout::UNIT;

/// A start that makes the first template, or takes up many sandboxes, asks systemd for more time.
const START_LIMIT: Duration = Duration::from_mins(10);
const LIMIT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy)]
pub(super) struct Service;

impl Service {
    pub(super) async fn reload_units(self) -> Result<()> {
        systemctl(&["daemon-reload"], LIMIT).await.map(drop)
    }

    pub(super) async fn is_active(self) -> Result<bool> {
        Ok(self.property("ActiveState").await? == "active")
    }

    /// The server's process, while there is one.
    pub(super) async fn pid(self) -> Result<Option<u32>> {
        let pid: u32 = self.property("MainPID").await?.parse()?;
        Ok((pid != 0).then_some(pid))
    }

    /// Until the server is ready. The error is what it says of itself.
    pub(super) async fn start(self) -> Result<()> {
        // One that failed too often is not started any more, however good its program is now.
        systemctl(&["reset-failed", UNIT], LIMIT).await.ok();
        let Err(error) = systemctl(&["start", UNIT], START_LIMIT).await else {
            return Ok(());
        };
        match self.property("StatusText").await {
            Ok(said) if !said.is_empty() => bail!("{said}"),
            _ => Err(error),
        }
    }

    pub(super) async fn stop(self) -> Result<()> {
        systemctl(&["stop", UNIT], LIMIT).await.map(drop)
    }

    async fn property(self, name: &str) -> Result<String> {
        let said = systemctl(&["show", UNIT, "--property", name, "--value"], LIMIT).await?;
        Ok(said.trim().to_owned())
    }
}

async fn systemctl(words: &[&str], limit: Duration) -> Result<String> {
    let line = || format!("systemctl {}", words.join(" "));
    let done = Command::new("systemctl")
        .args(words)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = timeout(limit, done)
        .await
        .with_context(|| format!("`{}` took longer than {} s", line(), limit.as_secs()))?
        .with_context(|| format!("could not run `{}`", line()))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("`{}` failed: {}", line(), said.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
