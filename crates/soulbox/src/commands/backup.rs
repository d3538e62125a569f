//! Backups of a server's data folder.

use std::path::Path;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use soulbox_server::{BackupDone, Progress};
use tokio::task::spawn_blocking;

use crate::{
    args::{BackupArgs, RestoreArgs},
    output::{self, units},
    report,
};

pub(super) async fn back_up(args: BackupArgs) -> Result<u8> {
    let bar = bar("copying", args.quiet);
    let shown = bar.clone();
    let done = spawn_blocking(move || {
        soulbox_server::back_up(&args.data_dir, &args.target, &|now: Progress<'_>| {
            show(&shown, now)
        })
    })
    .await?;
    bar.finish_and_clear();
    let done = done?;
    warn_of_gaps(&done);
    if args.json {
        output::json(&summary(&done, &done.path))?;
    } else {
        report::note(&format!("backed up {}", in_words(&done)));
        report::note("it holds keys and secrets: keep it as safe as the server");
        output::text(&done.path.display().to_string())?;
    }
    Ok(0)
}

pub(super) async fn restore(args: RestoreArgs) -> Result<u8> {
    let bar = bar(
        if args.verify {
            "verifying"
        } else {
            "restoring"
        },
        args.quiet,
    );
    let (shown, backup, data_dir) = (bar.clone(), args.backup, args.data_dir.clone());
    let done = spawn_blocking(move || {
        let watcher = |now: Progress<'_>| show(&shown, now);
        match &data_dir {
            Some(data_dir) => soulbox_server::restore(&backup, data_dir, &watcher),
            None => soulbox_server::verify_backup(&backup, &watcher),
        }
    })
    .await?;
    bar.finish_and_clear();
    let done = done?;
    warn_of_gaps(&done);
    let Some(data_dir) = args.data_dir else {
        if args.json {
            output::json(&summary(&done, &done.path))?;
        } else {
            report::note(&format!(
                "{} is whole: {}",
                done.path.display(),
                in_words(&done)
            ));
        }
        return Ok(0);
    };
    if done.other_host {
        report::warning(&format!(
            "this machine is not the {} of the backup: what was made from the template `base` sees \
             this machine's /usr",
            done.manifest.host
        ));
    }
    if args.json {
        output::json(&summary(&done, &data_dir))?;
    } else {
        report::note(&format!("restored {}", in_words(&done)));
        report::note(&format!(
            "sandboxes are paused, from their files. Start it with: soulbox serve --data-dir {}",
            data_dir.display()
        ));
    }
    Ok(0)
}

fn summary(done: &BackupDone, path: &Path) -> serde_json::Value {
    let manifest = &done.manifest;
    json!({
        "path": path,
        "format": manifest.format,
        "version": manifest.version,
        "created_at": manifest.created_at,
        "bytes": manifest.bytes(),
        "sandboxes": manifest.sandboxes,
        "snapshots": manifest.snapshots,
        "volumes": manifest.volumes,
        "builds": manifest.builds,
        "left_out": manifest.left_out,
    })
}

fn in_words(done: &BackupDone) -> String {
    let manifest = &done.manifest;
    format!(
        "{} sandboxes, {} snapshots, {} volumes and {} builds of templates ({})",
        manifest.sandboxes.len(),
        manifest.snapshots.len(),
        manifest.volumes.len(),
        manifest.builds.len(),
        units::bytes(manifest.bytes())
    )
}

fn warn_of_gaps(done: &BackupDone) {
    for gap in &done.manifest.left_out {
        report::warning(&format!("not in the backup: {}: {}", gap.what, gap.why));
    }
}

/// Shown on a terminal only.
fn bar(doing: &'static str, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = format!("{doing} {{bar:20}} {{bytes}}/{{total_bytes}} {{wide_msg}}");
    // The template is a constant; without it the bar is only plainer.
    if let Ok(style) = ProgressStyle::with_template(&style) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, now: Progress<'_>) -> bool {
    bar.set_length(now.total);
    bar.set_position(now.done);
    bar.set_message(output::printable(now.what));
    true
}
