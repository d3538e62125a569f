//! One delivery: resolved once, checked, and sent to the very address that was checked.

use std::{io, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use soulbox_outgoing::{InterimLimit, Tls, connect_any, only_outside, resolve};
use soulbox_types::Secret;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use uuid::Uuid;

use super::Target;

/// For all of one attempt.
const LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
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
    tls: Tls,
}

impl Sender {
    pub(crate) fn new(allow_private: bool) -> Self {
        Self {
            allow_private,
            tls: Tls::new(None),
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
            let stream = self.tls.connect(&target.host, stream, CONNECT_LIMIT).await;
            let stream = stream.map_err(|error| SendError::Connect(error.into_io()))?;
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
        let found = resolve(&target.host, target.port, CONNECT_LIMIT)
            .await
            .map_err(SendError::Connect)?;
        if found.is_empty() {
            return Err(SendError::NoAddress);
        }
        if !self.allow_private {
            let outside = only_outside(found.clone()).map_err(SendError::Connect)?;
            // One that is private says whose name it is.
            if outside.len() < found.len() {
                return Err(SendError::Private);
            }
        }
        connect_any(&found, CONNECT_LIMIT)
            .await
            .map_err(SendError::Connect)
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
