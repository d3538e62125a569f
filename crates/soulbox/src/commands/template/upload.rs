//! Sending an archive, with a bar for whoever watches.

use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use soulbox_client::{Client, Error, model::templates::FileSlot};
use tokio::time::sleep;

use crate::{pack::Archive, report};

/// A cut connection is met again a few times.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Does nothing when the server has the files.
pub(super) async fn send(
    client: &Client,
    template: &str,
    archive: &Archive,
    quiet: bool,
) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        let slot = client.file_slot(template, &archive.hash).await?;
        if slot.present {
            return Ok(());
        }
        match once(client, &slot, archive, quiet).await {
            Ok(()) => return Ok(()),
            Err(error) if attempt < ATTEMPTS && may_pass(&error) => {
                report::warning(&format!("the upload was cut off ({error}); trying again"));
                sleep(pause).await;
                pause *= 2;
            }
            Err(error) => return Err(error).context("the files could not be sent"),
        }
    }
    Ok(())
}

async fn once(
    client: &Client,
    slot: &FileSlot,
    archive: &Archive,
    quiet: bool,
) -> Result<(), Error> {
    let bar = bar(archive.length, quiet);
    let moved = bar.clone();
    let content = archive
        .stream(move |bytes| moved.inc(bytes))
        .map_err(Error::Source)?;
    let result = client.upload_files(slot, archive.length, content).await;
    bar.finish_and_clear();
    result
}

/// Shown on a terminal only.
fn bar(length: u64, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let style = "sending {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";
    // The template is a constant; without it the bar is only plainer.
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn may_pass(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::Broken { .. } | Error::Timeout { .. } => true,
        Error::Api(api) => api.status.is_server_error() || matches!(api.status.as_u16(), 408 | 429),
        _ => false,
    }
}
