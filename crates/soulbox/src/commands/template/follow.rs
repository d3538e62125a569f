//! Waiting for a build, with its log. Ctrl-C cancels it.

use std::time::{Duration, Instant};

use anyhow::Result;
use soulbox_client::{
    Client, Error,
    model::templates::{BuildReason, BuildStatus, RequestedBuild},
};
use tokio::time::{sleep, timeout};

use super::printer::Printer;
use crate::{interrupts::Interrupts, report};

pub(super) const POLL: Duration = Duration::from_millis(200);
/// How long a server that does not answer is waited for: builds survive its restart.
const TIMEOUT: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(1);
/// How long a cancelled build may take to end.
const CANCEL_LIMIT: Duration = Duration::from_secs(30);
const ABANDON_LIMIT: Duration = Duration::from_secs(5);

pub(super) enum BuildEnd {
    Ready,
    Failed(BuildReason),
    /// With the exit code of the signal.
    Interrupted(u8),
}

/// What Ctrl-C does to the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnInterrupt {
    Cancel,
    /// It is not ours alone.
    Leave,
}

pub(super) async fn follow(
    client: &Client,
    build: &RequestedBuild,
    printer: &mut Printer,
    interrupts: &mut Interrupts,
    on_interrupt: OnInterrupt,
) -> Result<BuildEnd> {
    let mut reader = Reader {
        client,
        build,
        offset: 0,
    };
    let code = tokio::select! {
        ending = reader.read_all(printer) => return ending,
        code = interrupts.next() => code,
    };
    printer.pause_progress();
    if on_interrupt == OnInterrupt::Leave {
        report::note("the build goes on; `soulbox template logs -f` shows it");
        return Ok(BuildEnd::Interrupted(code));
    }
    report::note("cancelling the build; once more to leave it as it is");
    let cancelled = async {
        client.cancel_build(&build.template, &build.build).await?;
        reader.read_all(printer).await
    };
    tokio::select! {
        result = timeout(CANCEL_LIMIT, cancelled) => match result {
            Ok(Ok(BuildEnd::Ready)) => Ok(BuildEnd::Ready),
            Ok(Err(error)) => {
                report::print(&error.context("the build could not be cancelled"));
                Ok(BuildEnd::Interrupted(code))
            }
            Ok(Ok(_)) => Ok(BuildEnd::Interrupted(code)),
            Err(_) => {
                report::warning("the build is cancelled but has not ended yet");
                Ok(BuildEnd::Interrupted(code))
            }
        },
        code = interrupts.next() => Ok(BuildEnd::Interrupted(code)),
    }
}

/// Takes back a build that was asked for and cannot be started.
pub(super) async fn abandon(client: &Client, build: &RequestedBuild) {
    // When this fails too, the server drops builds that never started.
    timeout(
        ABANDON_LIMIT,
        client.cancel_build(&build.template, &build.build),
    )
    .await
    .ok();
}

/// Reads a build's log from entry to entry.
pub(super) struct Reader<'a> {
    pub client: &'a Client,
    pub build: &'a RequestedBuild,
    pub offset: usize,
}

impl Reader<'_> {
    pub(super) async fn read_all(&mut self, printer: &mut Printer) -> Result<BuildEnd> {
        loop {
            let page = self.page().await?;
            for entry in &page.log_entries {
                printer.entry(entry);
            }
            let is_last = page.log_entries.is_empty();
            match page.status.as_str() {
                "ready" if is_last => return Ok(BuildEnd::Ready),
                "error" if is_last => {
                    return Ok(BuildEnd::Failed(page.reason.unwrap_or_else(|| {
                        BuildReason {
                            message: "the server gives no reason".to_owned(),
                            step: None,
                        }
                    })));
                }
                "ready" | "error" => {}
                _ => {
                    printer.tick();
                    sleep(POLL).await;
                }
            }
        }
    }

    /// What came since the last time.
    pub(super) async fn page(&mut self) -> Result<BuildStatus> {
        let mut trouble: Option<Instant> = None;
        loop {
            let (template, build) = (&self.build.template, &self.build.build);
            match self.client.build_status(template, build, self.offset).await {
                Ok(page) => {
                    self.offset += page.log_entries.len();
                    return Ok(page);
                }
                Err(error) if passes(&error) => {
                    let since = *trouble.get_or_insert_with(|| {
                        report::warning(&format!("{error}; trying again"));
                        Instant::now()
                    });
                    if since.elapsed() > TIMEOUT {
                        return Err(error.into());
                    }
                    sleep(RETRY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn passes(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::Broken { .. } | Error::Timeout { .. } => true,
        Error::Api(api) => api.status.is_server_error() || api.status.as_u16() == 429,
        _ => false,
    }
}
