//! The certificate in use, which can be exchanged while connections come in.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, bail};
use parking_lot::RwLock;
use rustls::{crypto::CryptoProvider, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

pub(super) struct Reloading {
    current: RwLock<Arc<CertifiedKey>>,
    /// Sent behind the chain: so that a client that meets it for the first time can be shown what to
    /// trust.
    authority: Option<PathBuf>,
}

impl fmt::Debug for Reloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading").finish_non_exhaustive()
    }
}

impl Reloading {
    pub(super) fn load(
        provider: &CryptoProvider,
        chain: &Path,
        key: &Path,
        authority: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let read = read(provider, chain, key, authority.as_deref())?;
        Ok(Self {
            current: RwLock::new(Arc::new(read)),
            authority,
        })
    }

    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read())
    }

    /// By the certificate's own words.
    pub(super) fn until(&self) -> Option<SystemTime> {
        let current = self.current();
        let issued = soulbox_acme::Issued::of_der(current.cert.first()?);
        issued.ok().map(|issued| issued.until)
    }

    pub(super) fn reload(
        &self,
        provider: &CryptoProvider,
        chain: &Path,
        key: &Path,
    ) -> anyhow::Result<()> {
        let fresh = read(provider, chain, key, self.authority.as_deref())?;
        let same = self.current.read().cert == fresh.cert;
        if !same {
            *self.current.write() = Arc::new(fresh);
            tracing::info!(certificate = %chain.display(), "a new TLS certificate is in use");
        }
        Ok(())
    }
}

pub(super) fn read(
    provider: &CryptoProvider,
    chain: &Path,
    key: &Path,
    authority: Option<&Path>,
) -> anyhow::Result<CertifiedKey> {
    let read_chain = || format!("could not read the TLS certificate {}", chain.display());
    let mut certificates = CertificateDer::pem_file_iter(chain)
        .with_context(read_chain)?
        .collect::<Result<Vec<_>, _>>()
        .with_context(read_chain)?;
    if certificates.is_empty() {
        bail!("{} holds no certificate in PEM format", chain.display());
    }
    if let Some(authority) = authority {
        let certificate = CertificateDer::from_pem_file(authority);
        let told = || format!("could not read the certificate {}", authority.display());
        certificates.push(certificate.with_context(told)?);
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("could not read the TLS key {}", key.display()))?;
    CertifiedKey::from_der(certificates, private, provider).with_context(|| {
        format!(
            "the TLS key {} does not fit the certificate {}",
            key.display(),
            chain.display()
        )
    })
}
