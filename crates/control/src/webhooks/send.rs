//! One delivery: resolved once, checked, and sent to the very address that was checked.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use sha2::{Digest, Sha256};
use soulbox_outgoing::{InterimLimit, leads_outside};
use soulbox_types::Secret;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use super::Target;

/// For all of one attempt.
const LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Where distributions keep their bundle.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("no answer within {} s", LIMIT.as_secs())]
    Late,
    #[error("the host has no address")]
    NoAddress,
    #[error("the host is on a private or local address, or on one of this server's own")]
    Private,
    #[error("could not connect: {0}")]
    Connect(io::Error),
    #[error("HTTP failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("the receiver answered {0}")]
    Status(StatusCode),
    #[error("the request could not be made")]
    Request(#[from] http::Error),
}

#[derive(Debug, Clone)]
pub(crate) struct Sender {
    allow_private: bool,
    /// Made at the first https delivery: most servers have none.
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl Sender {
    pub(crate) fn new(allow_private: bool) -> Self {
        Self {
            allow_private,
            tls: Arc::default(),
        }
    }

    pub(crate) async fn send(
        &self,
        target: &Target,
        webhook: &str,
        secret: &Secret,
        body: &str,
    ) -> Result<(), SendError> {
        let attempt = self.attempt(target, webhook, secret, body);
        tokio::time::timeout(LIMIT, attempt)
            .await
            .map_err(|_| SendError::Late)?
    }

    async fn attempt(
        &self,
        target: &Target,
        webhook: &str,
        secret: &Secret,
        body: &str,
    ) -> Result<(), SendError> {
        let request = Request::post(&target.path)
            .header("host", &target.authority)
            .header("content-type", "application/json")
            .header("user-agent", concat!("soulbox/", env!("CARGO_PKG_VERSION")))
            .header("e2b-webhook-id", webhook)
            .header("e2b-delivery-id", Uuid::new_v4().to_string())
            .header("e2b-signature-version", "v1")
            .header("e2b-signature", e2b_signature(secret, body))
            .header("soulbox-signature", own_signature(secret, body))
            .body(Full::new(Bytes::from(body.to_owned())))?;
        let stream = self.connect(target).await?;
        let status = if target.https {
            let name = ServerName::try_from(target.host.clone())
                .map_err(|error| SendError::Connect(io::Error::other(error)))?;
            let connector = TlsConnector::from(self.tls().map_err(SendError::Connect)?);
            let stream = connector
                .connect(name, stream)
                .await
                .map_err(SendError::Connect)?;
            exchange(stream, request).await?
        } else {
            exchange(stream, request).await?
        };
        // Redirects are not followed: they could lead where the address may not.
        if status.is_success() {
            Ok(())
        } else {
            Err(SendError::Status(status))
        }
    }

    async fn connect(&self, target: &Target) -> Result<TcpStream, SendError> {
        let found = tokio::net::lookup_host((target.host.as_str(), target.port));
        let addresses: Vec<SocketAddr> = found.await.map_err(SendError::Connect)?.collect();
        let mut last = SendError::NoAddress;
        for address in &addresses {
            if !self.allow_private && !leads_outside(address.ip()).map_err(SendError::Connect)? {
                return Err(SendError::Private);
            }
        }
        for address in addresses {
            match tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = SendError::Connect(error),
                Err(_) => last = SendError::Connect(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last)
    }

    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let config = client_config()?;
        Ok(Arc::clone(self.tls.get_or_init(|| config)))
    }
}

async fn exchange<S>(stream: S, mut request: Request<Full<Bytes>>) -> Result<StatusCode, SendError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let heads = InterimLimit::default();
    heads.watch(&mut request);
    let stream = TokioIo::new(heads.bound(stream));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let answered = async {
        let response = sender.send_request(request).await?;
        Ok(response.status())
    };
    // Together, so that nothing is left running when the attempt is given up.
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        ended = connection => {
            ended?;
            answered.await
        }
    }
}

/// As E2B's receivers check it: a plain digest over secret and body.
fn e2b_signature(secret: &Secret, body: &str) -> String {
    let digest = Sha256::new()
        .chain_update(secret.expose())
        .chain_update(body)
        .finalize();
    URL_SAFE_NO_PAD.encode(digest)
}

/// A proper MAC, for those who can choose.
fn own_signature(secret: &Secret, body: &str) -> String {
    match Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) {
        Ok(mut mac) => {
            mac.update(body.as_bytes());
            format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
        }
        // HMAC takes keys of every length.
        Err(_) => String::new(),
    }
}

fn client_config() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let bundle = SYSTEM_BUNDLES.iter().find(|path| Path::new(path).exists());
    let bundle = bundle.ok_or_else(|| io::Error::other("this machine has no root certificates"))?;
    let certificates = CertificateDer::pem_file_iter(bundle)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(io::Error::other)?;
    // Bundles of the world contain a few certificates that rustls does not accept.
    roots.add_parsable_certificates(certificates);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    async fn deliver(sender: &Sender, url: &str) -> Result<(), SendError> {
        let target = Target::parse(url, true).unwrap();
        let secret = Secret::new("key");
        let sent = sender.send(&target, "hook", &secret, "{}");
        tokio::time::timeout(Duration::from_secs(10), sent)
            .await
            .expect("in time")
    }

    #[tokio::test]
    async fn a_receiver_that_floods_with_interim_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            drop(socket.read(&mut [0; 4096]).await);
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            while socket.write_all(many.as_bytes()).await.is_ok() {}
        });
        let error = deliver(&Sender::new(true), &url).await.unwrap_err();
        assert!(soulbox_outgoing::is_flood(&error), "{error}");
    }

    /// The name is looked at when it is connected to, whatever it was when it was written down.
    #[tokio::test]
    async fn a_name_of_a_private_address_is_refused_when_it_is_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "127.1"] {
            let sent = deliver(&Sender::new(false), &format!("http://{host}:{port}/")).await;
            assert!(matches!(sent, Err(SendError::Private)), "{host}: {sent:?}");
        }
    }

    /// Services of the host that listen on its public address only are the operator's, too.
    #[test]
    fn an_address_of_this_very_machine_is_refused_although_it_is_a_public_one() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a network namespace needs root");
            return;
        }
        let test = std::thread::spawn(|| {
            soulbox_sys::enter_new_network().unwrap();
            for arguments in ["link set lo up", "address add 203.0.113.7/32 dev lo"] {
                let done = std::process::Command::new("ip")
                    .args(arguments.split(' '))
                    .status();
                assert!(done.unwrap().success(), "ip {arguments}");
            }
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("203.0.113.7:0").await.unwrap();
                let url = format!("http://{}/", listener.local_addr().unwrap());
                tokio::spawn(async move {
                    while let Ok((mut socket, _)) = listener.accept().await {
                        drop(socket.read(&mut [0; 4096]).await);
                        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                        drop(socket.write_all(answer).await);
                    }
                });
                let sent = deliver(&Sender::new(false), &url).await;
                assert!(matches!(sent, Err(SendError::Private)), "{sent:?}");
                // Unless the operator wants that.
                deliver(&Sender::new(true), &url).await.unwrap();
            });
        });
        test.join().unwrap();
    }

    #[test]
    fn signatures_are_those_that_receivers_compute() {
        let secret = Secret::new("key");
        // printf 'keybody' | openssl dgst -sha256 -binary | basenc --base64url
        assert_eq!(
            e2b_signature(&secret, "body"),
            "G66At1pXdU-Gs5CEE-Yjcil7nH1qJVaLy4JnXRVdFJw"
        );
        // printf 'body' | openssl dgst -sha256 -hmac key
        assert_eq!(
            own_signature(&secret, "body"),
            "sha256=515aae133b435d4000956731f68ae5cf5eb85d4f0dc6a546d2bfcd3595ec1ae1"
        );
    }
}
