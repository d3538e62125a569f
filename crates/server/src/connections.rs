//! From an accepted socket to requests: TLS, HTTP/1.1 and HTTP/2, and an orderly end.
//!
//! - `limits`: how many connections there may be
//! - `limiter`: which connections are open, and which idle one is closed for a new one
//! - `handler`: who handles the requests
//! - `socket`: the write timeout, for whatever is written
//! - `transport`: TLS, or plain HTTP, also on the port for TLS
//! - `streams`, `response`: the write timeout for HTTP/2, where clients hold back a response by its
//!   window
//!
//! Timeouts, whether the server is full or not: TLS handshake, first request, idle between two
//! requests, write. Handlers limit the time for reading the body of a request.

mod handler;
mod limiter;
mod limits;
mod response;
mod socket;
mod streams;
mod transport;

use std::{convert::Infallible, io, net::SocketAddr, os::fd::AsRawFd, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use rustix::io::Errno;
use soulbox_proxy::{ClientConnection, LogThrottle};
use soulbox_sys::send_unpaced;
use soulbox_types::Chain;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use handler::Handler;
pub(crate) use limiter::{ConnectionLimiter, ConnectionStats};
pub(crate) use limits::ConnectionLimits;
pub(crate) use transport::Transport;

use limiter::{ConnectionHandle, PendingConnection, State};
use response::track;
use socket::LimitedSocket;
use streams::StreamExecutor;
use transport::Handshake;

/// Longer than the 620 s for which E2B's clients rely on an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(640);
/// From the connection to the end of its first request's head.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For a client to take a byte of what waits for it. Longer than a busy client or a bad line needs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests may go on when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// For a connection that is closed while idle: a round trip of HTTP/2, or the rest of a next head.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);
/// Accepting failed, mostly for want of file descriptors: others must end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const MAX_HTTP2_STREAMS: u32 = 2000;
/// A file's metadata travels as one header per entry.
const MAX_HEADERS: usize = 512;
const MAX_HEADER_BYTES: u32 = 64 << 10;
const HTTP2_STREAM_WINDOW: u32 = 1 << 20;
const HTTP2_CONNECTION_WINDOW: u32 = 4 << 20;

/// All connections of some listeners. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    handler: Handler,
    limiter: ConnectionLimiter,
    http: Arc<auto::Builder<StreamExecutor>>,
    open: TaskTracker,
    refusals: Arc<LogThrottle>,
    /// No new requests.
    stopping: CancellationToken,
    /// Requests that are left are cut.
    aborting: CancellationToken,
}

impl Connections {
    pub(crate) fn new(handler: Handler, limiter: ConnectionLimiter) -> Self {
        Self {
            handler,
            limiter,
            http: Arc::new(http_builder()),
            open: TaskTracker::new(),
            refusals: Arc::default(),
            stopping: CancellationToken::new(),
            aborting: CancellationToken::new(),
        }
    }

    /// Accepts until [`Connections::drain`] is called. It pauses only while too many accepted
    /// connections are pending.
    pub(crate) async fn accept(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let failures = LogThrottle::default();
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_about_the_client(&error) => continue,
                Err(error) => {
                    if is_out_of_descriptors(&error) {
                        self.limiter.close_some();
                    }
                    if let Some(suppressed) = failures.should_log() {
                        tracing::warn!(error = %Chain(&error), suppressed, "could not accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if peer.ip().is_loopback() {
                send_unpaced(&socket);
            }
            let descriptor = u64::try_from(socket.as_raw_fd()).unwrap_or_default();
            let pending = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                pending = self.limiter.enqueue(peer.ip(), descriptor) => pending,
            };
            let this = self.clone();
            self.open
                .spawn(this.connection(pending, socket, peer, tls.clone()));
        }
    }

    fn log_refusal(&self, peer: SocketAddr) {
        if let Some(suppressed) = self.refusals.should_log() {
            tracing::warn!(
                %peer,
                busy = self.limiter.stats().busy,
                suppressed,
                "closed a new connection: the limit of connections is reached, of all or of this \
                 client, and none of them is idle. A higher limit of open files (LimitNOFILE, \
                 ulimit -n) allows more"
            );
        }
    }

    /// Lets requests finish for a moment, then ends what is left. Sandboxes are not touched.
    pub(crate) async fn drain(&self) {
        self.stopping.cancel();
        self.open.close();
        if tokio::time::timeout(DRAIN_TIMEOUT, self.open.wait())
            .await
            .is_err()
        {
            tracing::info!(
                connections = self.open.len(),
                "ending connections that did not finish"
            );
            self.aborting.cancel();
            // They only have to be dropped now.
            drop(tokio::time::timeout(Duration::from_secs(1), self.open.wait()).await);
        }
    }

    async fn connection(
        self,
        pending: PendingConnection,
        socket: TcpStream,
        peer: SocketAddr,
        tls: Option<TlsAcceptor>,
    ) {
        let permit = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            permit = pending.admitted() => permit,
        };
        let Some(permit) = permit else {
            return self.log_refusal(peer);
        };
        let socket = LimitedSocket::new(socket, permit);
        let handle = socket.handle();
        let Some(tls) = tls else {
            return self.serve(socket, peer, Transport::Plain, handle).await;
        };
        // One timeout for both: a client decides how it begins, and then has to go on.
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
            Ok::<_, io::Error>(if socket.begins_tls().await? {
                Handshake::Tls(Box::new(tls.accept(socket).await?))
            } else {
                Handshake::Plain(socket)
            })
        });
        let handshake = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            () = handle.close().cancelled() => return,
            handshake = handshake => handshake,
        };
        match handshake {
            Ok(Ok(Handshake::Tls(stream))) => {
                self.serve(stream, peer, Transport::Tls, handle).await;
            }
            Ok(Ok(Handshake::Plain(socket))) => {
                self.serve(socket, peer, Transport::PlainOnTlsPort, handle)
                    .await;
            }
            Ok(Err(error)) => {
                tracing::debug!(%peer, error = %Chain(&error), "TLS handshake failed");
            }
            Err(_elapsed) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn serve<S>(
        self,
        stream: S,
        peer: SocketAddr,
        transport: Transport,
        handle: ConnectionHandle,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let client = ClientConnection {
            address: peer,
            tls: transport == Transport::Tls,
        };
        let (handler, requests) = (self.handler, handle.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (handler, in_flight) = (handler.clone(), requests.request());
            async move {
                let response = handler.handle(request, client, transport).await;
                Ok::<_, Infallible>(track(response, in_flight))
            }
        });
        let connection = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut draining = tokio::select! {
            ended = connection.as_mut() => return log_end(client, ended),
            () = self.stopping.cancelled() => true,
            () = handle.close().cancelled() => false,
            () = timed_out(&handle) => false,
        };
        if !draining && handle.state().0 == State::New {
            // There is nothing to finish.
            return;
        }
        connection.as_mut().graceful_shutdown();
        loop {
            tokio::select! {
                ended = connection.as_mut() => return log_end(client, ended),
                () = self.aborting.cancelled() => return,
                () = self.stopping.cancelled(), if !draining => draining = true,
                () = tokio::time::sleep(CLOSE_TIMEOUT), if !draining => match handle.state() {
                    // A request crossed with the close.
                    (State::Busy, since) if since.elapsed() < WRITE_TIMEOUT => {}
                    (State::Busy, _) => handle.reset_blocked(),
                    _ => return,
                }
            }
        }
    }
}

fn log_end(client: ClientConnection, ended: Result<(), impl std::fmt::Display>) {
    if let Err(error) = ended {
        tracing::trace!(peer = %client.address, %error, "a connection broke");
    }
}

/// Returns when no request has arrived for too long. Until then it applies the write timeout to
/// the streams of HTTP/2.
async fn timed_out(handle: &ConnectionHandle) {
    loop {
        let (state, since) = handle.state();
        let timeout = match state {
            State::New => FIRST_REQUEST_TIMEOUT,
            State::Idle => IDLE_TIMEOUT,
            State::Busy => WRITE_TIMEOUT,
        };
        let now = Instant::now();
        if since + timeout > now {
            // What begins meanwhile times out later than that.
            tokio::time::sleep_until((since + timeout).min(now + WRITE_TIMEOUT)).await;
            continue;
        }
        match state {
            State::Busy => handle.reset_blocked(),
            State::Idle => return,
            State::New => return handle.count_no_request(),
        }
    }
}

fn http_builder() -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
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

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
