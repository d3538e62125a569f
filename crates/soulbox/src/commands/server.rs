//! The commands that live in other crates.

use anyhow::Result;
use soulbox_server::{Config, DnsArgs, ServeArgs, shutdown_signal};

pub(super) async fn serve(args: ServeArgs) -> Result<u8> {
    soulbox_server::serve(Config::try_from(args)?, shutdown_signal()).await?;
    Ok(0)
}

pub(super) async fn dns(args: DnsArgs) -> Result<u8> {
    soulbox_server::dns(args, shutdown_signal()).await?;
    Ok(0)
}
