//! The server of a bench: it ends with whoever started it, and takes its sandboxes and its folder
//! along.

use std::{io, os::fd::AsFd, path::Path};

use anyhow::{Context, Result};
use soulbox_bench::end_all;
use soulbox_client::{Client, config::Flags};
use soulbox_server::{Config, ServeArgs, shutdown_signal};
use tokio::{io::AsyncReadExt, net::unix::pipe};

pub(in crate::commands) async fn serve(args: ServeArgs) -> Result<u8> {
    let config = Config::try_from(args)?;
    let folder = config.data_dir.clone();
    let starter = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)
        .context("this is a part of `soulbox bench`, which gives it a pipe")?;
    let served = soulbox_server::serve(config, alone(starter, folder.clone())).await;
    let removed = tokio::task::spawn_blocking(move || remove(&folder)).await?;
    served?;
    removed.context("cannot remove the data folder")?;
    Ok(0)
}

/// Completes when the starter is gone, or at a signal, and no sandbox is left.
async fn alone(mut starter: pipe::Receiver, folder: std::path::PathBuf) {
    let signal = shutdown_signal();
    let closed = async {
        let mut ignored = [0; 64];
        while matches!(starter.read(&mut ignored).await, Ok(1..)) {}
    };
    tokio::select! {
        () = closed => {}
        () = signal => {}
    }
    let flags = Flags {
        data_dir: Some(folder),
        ..Flags::default()
    };
    // Without a key it has not come so far that there could be sandboxes.
    if let Ok(config) = soulbox_client::Config::resolve(&flags, |_| None) {
        end_all(&Client::new(&config, None)).await;
    }
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
