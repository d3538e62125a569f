//! From an accepted socket to requests: TLS, HTTP/1.1 and HTTP/2, and an orderly end.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use soulbox_proxy::ClientConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::dispatch::Dispatch;

/// Longer than the 620 s for which E2B's clients rely on an idle connection.
const IDLE_LIMIT: Duration = Duration::from_secs(640);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long streams may go on after the server was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Accepting failed, mostly for want of file descriptors: others must end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const MAX_HTTP2_STREAMS: u32 = 2000;
/// A file's metadata travels as one header per entry.
const MAX_HEADERS: usize = 512;
const MAX_HEADER_BYTES: u32 = 64 << 10;
const HTTP2_STREAM_WINDOW: u32 = 1 << 20;
const HTTP2_CONNECTION_WINDOW: u32 = 4 << 20;

/// All connections of the server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    dispatch: Dispatch,
    http: Arc<auto::Builder<TokioExecutor>>,
    open: TaskTracker,
    /// No new requests.
    stopping: CancellationToken,
    /// No more patience.
    cut: CancellationToken,
}

impl Connections {
    pub(crate) fn new(dispatch: Dispatch) -> Self {
        Self {
            dispatch,
            http: Arc::new(http_builder()),
            open: TaskTracker::new(),
            stopping: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Accepts until [`Connections::drain`] is called. Nothing that a client does holds it up.
    pub(crate) async fn accept(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => {
                    self.open
                        .spawn(self.clone().connection(socket, peer, tls.clone()));
                }
                Err(error) if is_about_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Lets requests finish for a moment, then ends what is left. Sandboxes are not touched.
    pub(crate) async fn drain(&self) {
        self.stopping.cancel();
        self.open.close();
        if tokio::time::timeout(DRAIN_LIMIT, self.open.wait())
            .await
            .is_err()
        {
            tracing::info!(
                connections = self.open.len(),
                "ending connections that did not finish"
            );
            self.cut.cancel();
            // They only have to be dropped now.
            drop(tokio::time::timeout(Duration::from_secs(1), self.open.wait()).await);
        }
    }

    async fn connection(self, socket: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>) {
        let client = ClientConnection {
            address: peer,
            tls: tls.is_some(),
        };
        let Some(tls) = tls else {
            return self.serve(socket, client).await;
        };
        let handshake = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            handshake = tokio::time::timeout(HANDSHAKE_LIMIT, tls.accept(socket)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => self.serve(stream, client).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_elapsed) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn serve<S>(self, stream: S, client: ClientConnection)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn(move |request: Request<Incoming>| {
            let dispatch = self.dispatch.clone();
            async move { Ok::<_, Infallible>(dispatch.handle(request, client).await) }
        });
        let connection = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = self.cut.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::trace!(peer = %client.address, %error, "a connection broke");
        }
    }
}

fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_LIMIT)
        .max_headers(MAX_HEADERS)
        .preserve_header_case(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .keep_alive_interval(Duration::from_mins(1))
        .keep_alive_timeout(Duration::from_secs(30));
    builder
}

fn is_about_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
