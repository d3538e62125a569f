//! From an accepted socket to requests: TLS, HTTP/1.1 and HTTP/2, and an orderly end.
//!
//! - `places`: how many connections there may be
//! - `guests`: who is there, who waits to come in, and who leaves when it is full
//! - `streams`: the streams of HTTP/2, which can be ended one by one
//! - `socket`, `answer`, `piece`: what keeps a guest's place, and what keeps it from being asked to leave

mod answer;
mod desk;
mod guests;
mod piece;
mod places;
mod socket;
mod streams;

use std::{convert::Infallible, io, net::SocketAddr, os::fd::AsRawFd, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use rustix::io::Errno;
use soulbox_proxy::{ClientConnection, Seldom};
use soulbox_sys::send_unpaced;
use soulbox_types::Chain;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use desk::Desk;
pub(crate) use guests::{GuestStats, Guests};
pub(crate) use places::Places;

use answer::accompany;
use guests::{Arrival, Mood, Newcomer, Presence};
use socket::GuestSocket;
use streams::Streams;

/// Longer than the 620 s for which E2B's clients rely on an idle connection.
const IDLE_LIMIT: Duration = Duration::from_secs(640);
/// From the connection to the end of its first request's head.
const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(30);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long streams may go on after the server was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// For a guest who was asked to leave: a round trip of HTTP/2, or the rest of a next head.
const FAREWELL: Duration = Duration::from_millis(250);
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
    desk: Desk,
    guests: Guests,
    http: Arc<auto::Builder<Streams>>,
    open: TaskTracker,
    refusals: Arc<Seldom>,
    /// No new requests.
    stopping: CancellationToken,
    /// No more patience.
    cut: CancellationToken,
}

impl Connections {
    pub(crate) fn new(desk: Desk, guests: Guests) -> Self {
        Self {
            desk,
            guests,
            http: Arc::new(http_builder()),
            open: TaskTracker::new(),
            refusals: Arc::default(),
            stopping: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Accepts until [`Connections::drain`] is called. Nothing that a client does holds it up, but
    /// for a moment when every place is taken.
    pub(crate) async fn accept(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let failures = Seldom::default();
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
                        self.guests.make_way();
                    }
                    if let Some(unsaid) = failures.now() {
                        tracing::warn!(error = %Chain(&error), unsaid, "could not accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if peer.ip().is_loopback() {
                send_unpaced(&socket);
            }
            let descriptor = u64::try_from(socket.as_raw_fd()).unwrap_or_default();
            let (this, tls) = (self.clone(), tls.clone());
            let arrival = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                arrival = self.guests.arrive(peer.ip(), descriptor) => arrival,
            };
            match arrival {
                Arrival::Placed(guest) => {
                    let socket = GuestSocket::new(socket, guest);
                    self.open.spawn(this.connection(socket, peer, tls));
                }
                Arrival::Waits(newcomer) => {
                    self.open.spawn(this.wait(newcomer, socket, peer, tls));
                }
                Arrival::Refused => self.note_refusal(peer),
            }
        }
    }

    async fn wait(
        self,
        newcomer: Newcomer,
        socket: TcpStream,
        peer: SocketAddr,
        tls: Option<TlsAcceptor>,
    ) {
        let guest = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            guest = newcomer.place() => guest,
        };
        match guest {
            Some(guest) => {
                drop(newcomer);
                let socket = GuestSocket::new(socket, guest);
                self.connection(socket, peer, tls).await;
            }
            None => self.note_refusal(peer),
        }
    }

    fn note_refusal(&self, peer: SocketAddr) {
        if let Some(unsaid) = self.refusals.now() {
            let guests = self.guests.stats();
            tracing::warn!(
                %peer,
                busy = guests.busy,
                unsaid,
                "closed a new connection: every place is taken by a busy one. A higher limit of \
                 open files (LimitNOFILE, ulimit -n) gives more places"
            );
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

    async fn connection(self, socket: GuestSocket, peer: SocketAddr, tls: Option<TlsAcceptor>) {
        let client = ClientConnection {
            address: peer,
            tls: tls.is_some(),
        };
        let presence = socket.presence();
        let Some(tls) = tls else {
            return self.serve(socket, client, presence).await;
        };
        let handshake = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            () = presence.leave().cancelled() => return,
            handshake = tokio::time::timeout(HANDSHAKE_LIMIT, tls.accept(socket)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => self.serve(stream, client, presence).await,
            Ok(Err(error)) => {
                tracing::debug!(%peer, error = %Chain(&error), "TLS handshake failed");
            }
            Err(_elapsed) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn serve<S>(self, stream: S, client: ClientConnection, presence: Presence)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (desk, asked) = (self.desk, presence.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (desk, underway) = (desk.clone(), asked.request());
            let version = request.version();
            async move {
                let response = desk.handle(request, client).await;
                Ok::<_, Infallible>(accompany(response, version, underway))
            }
        });
        let connection = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut stays = tokio::select! {
            ended = connection.as_mut() => return note_end(client, ended),
            () = self.stopping.cancelled() => true,
            () = presence.leave().cancelled() => false,
            () = presence.cut().cancelled() => return,
            () = overstayed(&presence) => false,
        };
        if !stays && presence.mood().0 == Mood::Silent {
            // There is nothing to finish.
            return;
        }
        connection.as_mut().graceful_shutdown();
        loop {
            tokio::select! {
                ended = connection.as_mut() => return note_end(client, ended),
                () = self.cut.cancelled() => return,
                () = presence.cut().cancelled() => return,
                () = self.stopping.cancelled(), if !stays => stays = true,
                () = tokio::time::sleep(FAREWELL), if !stays => {
                    if presence.mood().0 != Mood::Busy {
                        return;
                    }
                }
            }
        }
    }
}

fn note_end(client: ClientConnection, ended: Result<(), impl std::fmt::Display>) {
    if let Err(error) = ended {
        tracing::trace!(peer = %client.address, %error, "a connection broke");
    }
}

/// Returns when a guest has asked nothing for too long.
async fn overstayed(presence: &Presence) {
    loop {
        let (mood, since) = presence.mood();
        let until = match mood {
            Mood::Silent => since + FIRST_REQUEST_LIMIT,
            Mood::Idle | Mood::Busy => since + IDLE_LIMIT,
        };
        if until > tokio::time::Instant::now() {
            tokio::time::sleep_until(until).await;
            continue;
        }
        if mood == Mood::Silent {
            presence.never_asked();
        }
        return;
    }
}

fn http_builder() -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams);
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

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
