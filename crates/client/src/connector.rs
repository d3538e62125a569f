//! TCP and TLS connections for hyper's pool.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use soulbox_outgoing::{PooledStream, Tls, TlsError, presented};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

/// What the server of an `https` address presents, in DER, its own certificate first. Nothing is sent to it.
pub async fn presented_certificates(url: &crate::config::BaseUrl) -> io::Result<Vec<Vec<u8>>> {
    let (host, port) = url.host_and_port();
    let connecting = TcpStream::connect((address(&host), port));
    let tcp = timeout(CONNECT_LIMIT, connecting)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let certificates = presented(&host, tcp, CONNECT_LIMIT).await?;
    Ok(certificates.iter().map(|each| each.to_vec()).collect())
}

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Which step failed: the caller's advice differs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("connect")]
    Tcp(#[source] io::Error),
    #[error(transparent)]
    Tls(TlsError),
}

#[derive(Clone, Debug)]
pub(crate) struct Connector {
    tls: Tls,
}

impl Connector {
    /// `SSL_CERT_FILE` adds to the system's certificates and does not replace them: one variable can add
    /// a local authority without losing the public ones.
    pub(crate) fn new(extra_roots: Option<PathBuf>) -> Self {
        Self {
            tls: Tls::new(extra_roots),
        }
    }

    async fn connect(self, uri: Uri) -> Result<PooledStream, ConnectError> {
        let tls = uri.scheme_str() == Some("https");
        let host = uri
            .host()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s");

        let tcp = timeout(CONNECT_LIMIT, TcpStream::connect((address(host), port)))
            .await
            .map_err(|_| ConnectError::Tcp(late()))?
            .map_err(ConnectError::Tcp)?;
        // Key strokes must not wait for Nagle; without the option it is only slower.
        tcp.set_nodelay(true).ok();
        if !tls {
            return Ok(PooledStream::new(tcp));
        }
        let stream = self.tls.connect(host, tcp, CONNECT_LIMIT).await;
        stream.map(PooledStream::new).map_err(ConnectError::Tls)
    }
}

/// Names under `localhost` are this machine by definition (RFC 6761), but many resolvers do not
/// know it.
fn address(host: &str) -> &str {
    if host.ends_with(".localhost") {
        "127.0.0.1"
    } else {
        host
    }
}

impl Service<Uri> for Connector {
    type Response = PooledStream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<PooledStream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}
