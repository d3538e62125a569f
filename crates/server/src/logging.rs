//! Structured logs on standard error.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::LogFormat;

/// Libraries whose verbose logs contain headers and queries: only enabled by their name.
const DISCREET: [&str; 5] = ["h2", "hyper", "hyper_util", "rustls", "sqlx"];

/// Once per process; further calls have no effect.
pub(crate) fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(with_discretion(filter)).with_context(|| {
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

fn with_discretion(filter: &str) -> String {
    let named = |library: &str| {
        filter.split(',').any(|part| {
            let target = part.split(['=', '[']).next().unwrap_or_default().trim();
            target.split("::").next() == Some(library)
        })
    };
    let quiet = DISCREET
        .iter()
        .filter(|library| !named(library))
        .map(|l| format!("{l}=warn"));
    std::iter::once(filter.to_owned())
        .chain(quiet)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_general_wish_for_detail_does_not_open_the_libraries() {
        assert_eq!(
            with_discretion("trace"),
            "trace,h2=warn,hyper=warn,hyper_util=warn,rustls=warn,sqlx=warn"
        );
        assert_eq!(
            with_discretion("info,h2::frame=debug,sqlx=info"),
            "info,h2::frame=debug,sqlx=info,hyper=warn,hyper_util=warn,rustls=warn"
        );
        assert!(EnvFilter::try_new(with_discretion("debug")).is_ok());
    }
}
