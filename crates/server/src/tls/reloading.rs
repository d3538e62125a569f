//! The certificate in use, which can be exchanged while connections come in.

use std::{fmt, path::Path, sync::Arc};

use anyhow::{Context, bail};
use parking_lot::RwLock;
use rustls::{
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

pub(super) struct Reloading {
    current: RwLock<Arc<CertifiedKey>>,
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
    ) -> anyhow::Result<Self> {
        Ok(Self {
            current: RwLock::new(Arc::new(read(provider, chain, key)?)),
        })
    }

    pub(super) fn reload(
        &self,
        provider: &CryptoProvider,
        chain: &Path,
        key: &Path,
    ) -> anyhow::Result<()> {
        let fresh = read(provider, chain, key)?;
        let same = self.current.read().cert == fresh.cert;
        if !same {
            *self.current.write() = Arc::new(fresh);
            tracing::info!(certificate = %chain.display(), "a new TLS certificate is in use");
        }
        Ok(())
    }
}

impl ResolvesServerCert for Reloading {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

fn read(provider: &CryptoProvider, chain: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let read_chain = || format!("could not read the TLS certificate {}", chain.display());
    let certificates = CertificateDer::pem_file_iter(chain)
        .with_context(read_chain)?
        .collect::<Result<Vec<_>, _>>()
        .with_context(read_chain)?;
    if certificates.is_empty() {
        bail!("{} holds no certificate in PEM format", chain.display());
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
