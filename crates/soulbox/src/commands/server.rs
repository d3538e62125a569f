//! The commands that live in other crates.

use std::ffi::OsString;

use anyhow::Result;
use soulbox_server::{Config, DnsArgs, ServeArgs, ServiceManager, shutdown_signal};

pub(super) async fn serve(args: ServeArgs, service_manager: Option<OsString>) -> Result<u8> {
    let shutdown = shutdown_signal();
    let manager = ServiceManager::at(service_manager.as_deref());
    soulbox_server::serve(Config::try_from(args)?, &manager, shutdown).await?;
    Ok(0)
}

pub(super) async fn dns(args: DnsArgs) -> Result<u8> {
    soulbox_server::dns(args, shutdown_signal()).await?;
    Ok(0)
}
