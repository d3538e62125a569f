//! The certificates that a server presents, whether or not anybody vouches for them: for a person to look at.
//! Nothing is sent to that server, and nothing is believed of it.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// The server's own first. The connection is closed when the handshake is done.
pub async fn presented(
    host: &str,
    tcp: TcpStream,
    limit: Duration,
) -> io::Result<Vec<CertificateDer<'static>>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let seen = Arc::new(Seen {
        certificates: Mutex::default(),
        provider: Arc::clone(&provider),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, tcp);
    match timeout(limit, connecting).await {
        Ok(done) => drop(done?),
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    Ok(std::mem::take(&mut *seen.certificates.lock()))
}

#[derive(Debug)]
struct Seen {
    certificates: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let all = std::iter::once(own).chain(others);
        *self.certificates.lock() = all.map(|each| each.clone().into_owned()).collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _own: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _own: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
