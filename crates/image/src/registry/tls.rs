//! Trusted certificate authorities: the system's and the operator's.

use std::{io, path::Path, sync::Arc};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject};

/// Where distributions keep their bundle.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(crate) fn client_config(extra: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let system = SYSTEM_BUNDLES.iter().map(Path::new);
    if let Some(bundle) = system.into_iter().find(|path| path.exists()) {
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
