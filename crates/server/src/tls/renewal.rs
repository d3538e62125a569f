//! Gets certificates from an ACME server, before they are due and again after a failure, for as long as the
//! server runs. While it fails, what was there before is served.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use soulbox_acme::{Acme, Challenge, Hook, Tokens, certificate_file};
use soulbox_types::Chain;

use super::{Certificates, reloading};
use crate::{AcmeChallenge, AcmeConfig};

/// The clock may be set while we wait.
const LOOK_AGAIN: Duration = Duration::from_hours(1);
/// Let's Encrypt allows five failures in an hour.
const FIRST_PAUSE: Duration = Duration::from_mins(2);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

#[derive(Debug)]
pub(crate) struct Renewal {
    acme: Acme,
    pub(crate) tokens: Tokens,
    certificates: Arc<Certificates>,
}

pub(crate) fn folder(data_dir: &Path) -> std::path::PathBuf {
    data_dir.join("acme")
}

impl Renewal {
    /// Uses what there is from an earlier start.
    pub(super) fn new(
        config: &AcmeConfig,
        data_dir: &Path,
        certificates: Arc<Certificates>,
    ) -> Self {
        let tokens = Tokens::default();
        let challenge = match (config.challenge, &config.hook) {
            (AcmeChallenge::Dns01, Some(program)) => Challenge::Dns01(Hook {
                program: program.clone(),
            }),
            _ => Challenge::Http01(tokens.clone()),
        };
        let acme = Acme {
            directory: config.directory.clone(),
            email: config.email.clone(),
            names: config.names.clone(),
            challenge,
            folder: folder(data_dir),
            extra_roots: config.extra_roots.clone(),
        };
        let renewal = Self {
            acme,
            tokens,
            certificates,
        };
        if let Err(error) = renewal.take_kept() {
            tracing::warn!(
                error = format!("{error:#}"),
                "the certificate of an earlier start cannot be used"
            );
        }
        renewal
    }

    pub(crate) async fn keep(&self) {
        let mut failures = 0;
        loop {
            let pause = match self.acme.kept() {
                Ok(Some(issued)) if issued.is_valid(SystemTime::now()) => issued
                    .due()
                    .duration_since(SystemTime::now())
                    .unwrap_or_default(),
                _ => Duration::ZERO,
            };
            if !pause.is_zero() {
                tokio::time::sleep(pause.min(LOOK_AGAIN)).await;
                continue;
            }
            match self.renew().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    self.certificates.count(false);
                    let wait = FIRST_PAUSE
                        .saturating_mul(1 << failures.min(16))
                        .min(LONGEST_PAUSE);
                    failures += 1;
                    tracing::error!(
                        error = %Chain(error.as_ref()),
                        directory = self.acme.directory,
                        next_try_in_seconds = wait.as_secs(),
                        "no certificate from the ACME server; the one before it, or that of the local CA, \
                         is served"
                    );
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    async fn renew(&self) -> anyhow::Result<()> {
        let names = self.acme.names.join(", ");
        tracing::info!(
            directory = self.acme.directory,
            names,
            "asking for a certificate"
        );
        self.acme.obtain().await?;
        self.take_kept()?;
        self.certificates.count(true);
        tracing::info!(names, "a certificate of the ACME server is in use");
        Ok(())
    }

    /// The files are small and local.
    fn take_kept(&self) -> anyhow::Result<()> {
        let Some(issued) = self.acme.kept()? else {
            return Ok(());
        };
        let file = certificate_file(&self.acme.folder);
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = reloading::read(&provider, &file, &file, None)?;
        self.certificates.use_acme(key, issued);
        Ok(())
    }
}
