//! The way back: what was installed goes, the program last, so that whoever is killed can go on.

use std::path::Path;

use anyhow::{Context, Result};
use soulbox_server::{OfflineFolder, keeps_sandboxes};

use super::{
    Target, documents,
    files::{self, Files},
    program,
    service::Service,
};
use crate::{args::UninstallArgs, report::advice};

pub(crate) async fn uninstall(args: &UninstallArgs) -> Result<()> {
    let target = Target::find(&args.place, args.data_dir.as_deref())?;
    let Target { layout, data_dir } = &target;
    let files = Files {
        dry_run: args.place.dry_run,
    };
    // A folder of another root file system has no sandboxes here.
    let data = layout.at(data_dir);
    let ending = args.purge || args.end_sandboxes;
    if !ending && keeps_sandboxes(&data) {
        return Err(advice(
            format!("there are sandboxes in {}", data.display()),
            "without a server nobody ends them: `soulbox kill --all` first, or --end-sandboxes",
        ));
    }
    let lock = if files.dry_run {
        None
    } else {
        Some(files::lock(layout)?)
    };
    if layout.unit().exists() {
        files.tell(&format!("remove the service {}", layout.unit().display()))?;
        if layout.has_systemd() && !files.dry_run {
            Service.stop().await?;
        }
        files.remove(&layout.wanted())?;
        files.remove(&layout.unit())?;
        if layout.has_systemd() && !files.dry_run {
            Service.reload_units().await?;
        }
    }
    clear(&data, layout.is_this_system(), args.purge, files).await?;
    if args.purge && layout.settings().exists() {
        files.tell(&format!("remove {}", layout.settings().display()))?;
        files.remove(&layout.settings())?;
    }
    for document in documents::installed(layout)? {
        files.remove(&document)?;
    }
    files.tell(&format!("remove {}", layout.program().display()))?;
    files.remove(&program::unfinished_copy(&layout.program())?)?;
    files.remove(&layout.program())?;
    // With what killed runs have left in it.
    files.remove_folder(&layout.own_folder())?;
    drop(lock);
    if !args.purge && data.exists() {
        files.tell(&format!("leave {} as it is", data.display()))?;
    }
    Ok(())
}

async fn clear(data: &Path, is_this_system: bool, purge: bool, files: Files) -> Result<()> {
    if !data.exists() {
        return Ok(());
    }
    if files.dry_run {
        return if purge {
            files.tell(&format!("end its sandboxes and remove {}", data.display()))
        } else {
            Ok(())
        };
    }
    let cannot = || format!("could not clear {}", data.display());
    let Some(folder) = OfflineFolder::open(data).with_context(cannot)? else {
        return Ok(());
    };
    if is_this_system {
        folder.end_sandboxes().await.with_context(cannot)?;
    }
    if purge {
        files.tell(&format!("remove {}", data.display()))?;
        tokio::task::spawn_blocking(move || folder.remove())
            .await?
            .with_context(cannot)?;
    }
    Ok(())
}
