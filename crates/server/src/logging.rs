//! Structured logs on standard error.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::LogFormat;

/// Once per process; a second call leaves the first in place.
pub(crate) fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| {
        format!("--log: `{filter}` is not a filter such as info or soulbox_proxy=debug,info")
    })?;
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(true)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    if tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .is_err()
    {
        tracing::debug!("logging is set up already");
    }
    Ok(())
}
