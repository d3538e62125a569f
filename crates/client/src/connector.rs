//! TCP and TLS connections for hyper's pool.

use std::{
    fmt, io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use soulbox_outgoing::{InterimLimit, LimitedStream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::tls;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Which step failed: the caller's advice differs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("connect")]
    Tcp(#[source] io::Error),
    #[error("TLS handshake")]
    Tls(#[source] io::Error),
    #[error("root certificates")]
    Roots(#[source] io::Error),
}

#[derive(Clone)]
pub(crate) struct Connector {
    extra_roots: Option<PathBuf>,
    /// Made on the first https connection: reading the system's bundle takes milliseconds that
    /// plain http should not pay.
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("extra_roots", &self.extra_roots)
            .finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(extra_roots: Option<PathBuf>) -> Self {
        Self {
            extra_roots,
            config: Arc::default(),
        }
    }

    async fn connect(self, uri: Uri) -> Result<Stream, ConnectError> {
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
            return Ok(Stream::new(tcp));
        }

        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
        let connector = TlsConnector::from(self.tls_config().await?);
        let stream = timeout(CONNECT_LIMIT, connector.connect(name, tcp))
            .await
            .map_err(|_| ConnectError::Tls(late()))?
            .map_err(ConnectError::Tls)?;
        Ok(Stream::new(stream))
    }

    async fn tls_config(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let extra = self.extra_roots.clone();
        let config = tokio::task::spawn_blocking(move || tls::client_config(extra.as_deref()))
            .await
            .map_err(|error| ConnectError::Roots(io::Error::other(error)))?
            .map_err(ConnectError::Roots)?;
        Ok(self.config.get_or_init(|| config).clone())
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
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) struct Stream {
    io: TokioIo<LimitedStream<Box<dyn Duplex>>>,
    interim_limit: InterimLimit,
}

impl Stream {
    fn new(stream: impl Duplex + 'static) -> Self {
        let interim_limit = InterimLimit::default();
        let stream: Box<dyn Duplex> = Box::new(stream);
        Self {
            io: TokioIo::new(interim_limit.bound(stream)),
            interim_limit,
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.interim_limit.clone())
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    // Without these hyper puts every chunk of a body into one buffer first.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
