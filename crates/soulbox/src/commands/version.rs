use anyhow::Result;
use serde::Serialize;
use soulbox_types::ENVD_VERSION;

use crate::{args::VersionArgs, output};

#[derive(Serialize)]
struct Version {
    version: &'static str,
    /// Of E2B's in-sandbox protocol.
    envd: &'static str,
}

pub(super) fn run(args: &VersionArgs) -> Result<u8> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        envd: ENVD_VERSION,
    };
    if args.json {
        output::json(&version)?;
    } else {
        output::text(&format!(
            "soulbox {} (envd protocol {})",
            version.version, version.envd
        ))?;
    }
    Ok(0)
}
