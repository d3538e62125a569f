//! TLS towards servers that the system's certificate authorities vouch for, or those of one more file.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Where distributions keep their bundle.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Which step failed: what helps differs.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("root certificates")]
    Roots(#[source] io::Error),
    #[error("TLS handshake")]
    Handshake(#[source] io::Error),
}

impl TlsError {
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Roots(error) | Self::Handshake(error) => error,
        }
    }
}

/// Clones share what was read.
#[derive(Clone)]
pub struct Tls {
    extra_roots: Option<PathBuf>,
    /// Made at the first connection: reading the system's bundle takes milliseconds that plain HTTP
    /// should not pay.
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("extra_roots", &self.extra_roots)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// `extra_roots`: besides the system's, not instead.
    pub fn new(extra_roots: Option<PathBuf>) -> Self {
        Self {
            extra_roots,
            config: Arc::default(),
        }
    }

    pub async fn connect(
        &self,
        host: &str,
        tcp: TcpStream,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| TlsError::Handshake(io::Error::other(error)))?;
        let connector = TlsConnector::from(self.config().await.map_err(TlsError::Roots)?);
        match timeout(limit, connector.connect(name, tcp)).await {
            Ok(done) => done.map_err(TlsError::Handshake),
            Err(_) => Err(TlsError::Handshake(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn config(&self) -> io::Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let extra = self.extra_roots.clone();
        let config = tokio::task::spawn_blocking(move || client_config(extra.as_deref()))
            .await
            .map_err(io::Error::other)??;
        Ok(Arc::clone(self.config.get_or_init(|| config)))
    }
}

/// The system's bundle, if it has one.
pub fn system_roots() -> Option<String> {
    let mut found = SYSTEM_BUNDLES.iter();
    found.find_map(|path| std::fs::read_to_string(path).ok())
}

fn client_config(extra: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let mut system = SYSTEM_BUNDLES.iter().map(Path::new);
    if let Some(bundle) = system.find(|path| path.exists()) {
        add(&mut roots, bundle)?;
    }
    if let Some(extra) = extra {
        add(&mut roots, extra)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn add(roots: &mut RootCertStore, bundle: &Path) -> io::Result<()> {
    let named = |error: rustls_pki_types::pem::Error| {
        io::Error::other(format!("{}: {error}", bundle.display()))
    };
    let certificates = CertificateDer::pem_file_iter(bundle)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(named)?;
    // Bundles of the world contain a few certificates that rustls does not accept.
    roots.add_parsable_certificates(certificates);
    Ok(())
}
