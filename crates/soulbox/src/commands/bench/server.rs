//! The server of a bench: it ends with whoever started it, and takes its sandboxes and its folder
//! along.

use std::{io, os::fd::AsFd, path::Path};

use anyhow::{Context, Result, bail};
use soulbox_bench::{end_all, left};
use soulbox_server::{Config, ServeArgs, ServiceManager, shutdown_signal};
use tokio::{io::AsyncReadExt, net::unix::pipe};

pub(in crate::commands) async fn serve(args: ServeArgs) -> Result<u8> {
    let mut config = Config::try_from(args)?;
    let folder = config.data_dir.clone();
    let starter = io::stdin();
    let mut before = usize::MAX;
    loop {
        let starter = pipe::Receiver::from_owned_fd(starter.as_fd().try_clone_to_owned()?)
            .context("this is a part of `soulbox bench`, which gives it a pipe")?;
        let nobody = ServiceManager::at(None);
        let served = soulbox_server::serve(config.clone(), &nobody, alone(starter, &folder)).await;
        let left = left(&folder).await;
        if left == 0 {
            tokio::task::spawn_blocking(move || remove(&folder))
                .await?
                .context("cannot remove the data folder")?;
            return served.map(|()| 0);
        }
        served?;
        // Processes without a folder would be nobody's: with it, a later server can end them.
        if left >= before {
            bail!(
                "{left} sandboxes could not be ended: {} stays",
                folder.display()
            );
        }
        // A stop has bounds, which a large pool passes; the next start ends what was left.
        before = left;
        (config.pool, config.warm) = (0, 0);
    }
}

/// Completes when the starter is gone, or at a signal, and no sandbox is left that can be ended.
async fn alone(mut starter: pipe::Receiver, folder: &Path) {
    let signal = shutdown_signal();
    let closed = async {
        let mut ignored = [0; 64];
        while matches!(starter.read(&mut ignored).await, Ok(1..)) {}
    };
    tokio::select! {
        () = closed => {}
        () = signal => {}
    }
    end_all(folder).await;
}

fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The starter's; if it was killed, whoever is last takes it away.
    if let Some(parent) = folder.parent() {
        std::fs::remove_dir(parent).ok();
    }
    Ok(())
}
