//! TLS: with a certificate authority of our own, or with the operator's certificate.
//!
//! E2B's SDKs insist on https and on one host name per sandbox, so a wildcard certificate is
//! needed from the first minute, without a public name and without the internet.

mod authority;
mod bundle;
mod certificates;
mod reloading;
mod renewal;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::ServerSessionMemoryCache,
};

use self::reloading::Reloading;
pub(crate) use self::{certificates::Certificates, renewal::Renewal};
use crate::AcmeConfig;

/// Renewed certificates (ours or the operator's) are picked up without a restart.
const RELOAD_EVERY: Duration = Duration::from_hours(1);
/// Many clients open one connection per sandbox; resumption saves most of each handshake.
const REMEMBERED_SESSIONS: usize = 16 << 10;

/// Where the certificate comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Files below `dir`, made when absent.
    Local {
        dir: PathBuf,
        domain: String,
        addresses: Vec<IpAddr>,
    },
    Own {
        certificate: PathBuf,
        key: PathBuf,
    },
}

#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) renewal: Option<Renewal>,
    source: Source,
}

impl Tls {
    pub(crate) fn load(source: Source) -> anyhow::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let (certificate, key) = source.files()?;
        let usual = Reloading::load(&provider, &certificate, &key, source.authority())?;
        let certificates = Arc::new(Certificates::new(usual));
        let config = server_config(provider, Arc::clone(&certificates))?;
        Ok(Self {
            config: Arc::new(config),
            certificates,
            renewal: None,
            source,
        })
    }

    /// And one of an ACME server, for the names that it gives one for.
    #[must_use]
    pub(crate) fn with_acme(mut self, config: &AcmeConfig, data_dir: &Path) -> Self {
        let certificates = Arc::clone(&self.certificates);
        self.renewal = Some(Renewal::new(config, data_dir, certificates));
        self
    }

    /// Runs for ever. A renewal that fails keeps the old certificate.
    pub(crate) async fn keep_fresh(&self) {
        let mut tick = tokio::time::interval(RELOAD_EVERY);
        tick.tick().await;
        loop {
            tick.tick().await;
            let source = self.source.clone();
            let certificates = Arc::clone(&self.certificates);
            let reload = tokio::task::spawn_blocking(move || {
                let (chain, key) = source.files()?;
                let provider = aws_lc_rs::default_provider();
                certificates.usual.reload(&provider, &chain, &key)
            });
            match reload.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(error = format!("{error:#}"), "TLS certificate not reloaded");
                }
                Err(error) => tracing::error!(%error, "TLS certificate not reloaded"),
            }
        }
    }
}

impl Source {
    fn authority(&self) -> Option<PathBuf> {
        match self {
            Self::Own { .. } => None,
            Self::Local { dir, .. } => Some(dir.join(authority::CA)),
        }
    }

    /// The certificate's chain and key, made or renewed when they are ours.
    fn files(&self) -> anyhow::Result<(PathBuf, PathBuf)> {
        match self {
            Self::Own { certificate, key } => Ok((certificate.clone(), key.clone())),
            Self::Local {
                dir,
                domain,
                addresses,
            } => {
                authority::ensure(dir, domain, addresses, SystemTime::now())
                    .with_context(|| format!("could not make certificates in {}", dir.display()))?;
                Ok((dir.join(authority::LEAF), dir.join(authority::LEAF_KEY)))
            }
        }
    }
}

fn server_config(
    provider: Arc<CryptoProvider>,
    certificates: Arc<Certificates>,
) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(REMEMBERED_SESSIONS);
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(config)
}

/// What clients must trust, for the environment file. `None`: the operator's certificate needs
/// nothing of ours.
pub(crate) fn trust_files(source: &Source) -> Option<(PathBuf, PathBuf)> {
    match source {
        Source::Own { .. } => None,
        Source::Local { dir, .. } => Some((dir.join(authority::CA), dir.join(authority::BUNDLE))),
    }
}

pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tls")
}

#[cfg(test)]
mod tests;
