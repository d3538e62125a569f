use anyhow::Result;
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    args::{InstallArgs, UninstallArgs},
    install,
};

pub(super) async fn install(args: InstallArgs) -> Result<u8> {
    let handle = Handle::current();
    spawn_blocking(move || handle.block_on(install::install(&args))).await??;
    Ok(0)
}

pub(super) async fn uninstall(args: UninstallArgs) -> Result<u8> {
    let handle = Handle::current();
    spawn_blocking(move || handle.block_on(install::uninstall(&args))).await??;
    Ok(0)
}
