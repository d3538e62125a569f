//! The name server at the gateway's address. It has no cache and no opinion: questions of our own
//! sandboxes go to the host's name servers, answers come back, and everything is bounded.
//!
//! A sandbox that asks faster than it may waits for its turns; when too many of its questions wait
//! or are under way, the next is dropped. Not answered with a refusal: resolvers ask again later
//! after silence, while a refusal is the end for a program that was only quick, and makes one that
//! floods ask all the faster.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, AdmissionPermit};
use super::message;
use super::query_limiter::QueryLimiter;
use super::refuser::Refuser;
use super::resolver::Resolver;
use super::upstream::{Upstream, framed};
use crate::by_name::{DomainRules, Question};
use crate::{Error, Ipv4Net, NetConfig};

const PORT: u16 = 53;
const OTHER_PORTS: usize = 20;
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// No name and no sane option needs more.
pub(super) const LARGEST_QUERY: usize = 4096;
const QUERIES_EACH: usize = 64;
const QUERIES: usize = 1024;
const CONNECTIONS_EACH: usize = 8;
const CONNECTIONS: usize = 256;
/// A connection without a question for this long is closed; so is one that does not read.
const IDLE: Duration = Duration::from_secs(10);

/// Bound sockets, not yet serving.
#[derive(Debug)]
pub(crate) struct Forwarder {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
    port: u16,
    refuser: Refuser,
    range: Ipv4Net,
    upstream: Arc<Upstream>,
    limiter: Arc<QueryLimiter>,
    rules: Arc<DomainRules>,
}

impl Forwarder {
    /// Takes port 53 of the gateway, or another where a name server of the host listens on every
    /// address; the firewall then sends questions there.
    pub(crate) async fn bind(config: &NetConfig, rules: Arc<DomainRules>) -> Result<Self, Error> {
        let address = SocketAddr::from((config.gateway(), PORT));
        let mut sockets = sockets(address).await;
        if matches!(&sockets, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
            tracing::info!(%address, "another name server has the port; taking a different one");
            // A port that is free for one kind may be taken for the other.
            for _ in 0..OTHER_PORTS {
                sockets = self::sockets(SocketAddr::from((config.gateway(), 0))).await;
                if sockets.is_ok() {
                    break;
                }
            }
        }
        let failed = |source| Error::DnsListen { address, source };
        let (udp, tcp, port) = sockets.map_err(failed)?;
        let refuser = Refuser::bind(config.gateway(), config.range);
        Ok(Self {
            refuser: refuser.await.map_err(failed)?,
            udp: Arc::new(udp),
            tcp,
            port,
            range: config.range,
            upstream: Arc::new(Upstream::new(&config.upstream_dns, RESOLV_CONF)),
            limiter: QueryLimiter::new(),
            rules,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where questions are only refused.
    pub(crate) fn refusing_port(&self) -> u16 {
        self.refuser.port()
    }

    /// For names that the node connects to.
    pub(crate) fn resolver(&self) -> Resolver {
        Resolver {
            upstream: Arc::clone(&self.upstream),
            limiter: Arc::clone(&self.limiter),
        }
    }

    pub(crate) fn limiter(&self) -> Arc<QueryLimiter> {
        Arc::clone(&self.limiter)
    }

    pub(crate) async fn serve(self, stop: CancellationToken) {
        let all = async { tokio::join!(self.serve_udp(), self.serve_tcp(), self.refuser.serve()) };
        stop.run_until_cancelled(all).await;
    }

    async fn serve_udp(&self) {
        let admission = Admission::new(QUERIES_EACH, QUERIES);
        // Ends what is under way when we end.
        let mut under_way = JoinSet::new();
        let mut buffer = vec![0; LARGEST_QUERY + 1];
        loop {
            while under_way.try_join_next().is_some() {}
            let (length, from) = match self.udp.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => {
                    rest("receiving questions", &error).await;
                    continue;
                }
            };
            let query = &buffer[..length];
            if length > LARGEST_QUERY || !message::is_query(query) {
                continue;
            }
            let Some((source, place)) = self.admit(&admission, from) else {
                continue;
            };
            let (query, socket) = (query.to_vec(), Arc::clone(&self.udp));
            let (upstream, limiter) = (Arc::clone(&self.upstream), Arc::clone(&self.limiter));
            let rules = Arc::clone(&self.rules);
            under_way.spawn(async move {
                limiter.throttle(source).await;
                let answer = match judged(&rules, source, &query) {
                    Some(answer) => answer,
                    None => upstream
                        .ask_udp(&query)
                        .await
                        .unwrap_or_else(|| message::failure(&query)),
                };
                // A sandbox that is gone, or a full buffer: UDP may lose it.
                socket.send_to(&answer, from).await.ok();
                drop(place);
            });
        }
    }

    async fn serve_tcp(&self) {
        let admission = Admission::new(CONNECTIONS_EACH, CONNECTIONS);
        let mut under_way = JoinSet::new();
        loop {
            while under_way.try_join_next().is_some() {}
            let (stream, from) = match self.tcp.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    rest("accepting connections", &error).await;
                    continue;
                }
            };
            let Some((source, place)) = self.admit(&admission, from) else {
                continue;
            };
            let conversation = TcpConnection {
                source,
                stream,
                upstream: Arc::clone(&self.upstream),
                limiter: Arc::clone(&self.limiter),
                rules: Arc::clone(&self.rules),
            };
            under_way.spawn(async move {
                if let Err(error) = conversation.hold().await {
                    tracing::debug!(%from, %error, "name server connection ended");
                }
                drop(place);
            });
        }
    }

    /// A place for one of our sandboxes.
    fn admit(
        &self,
        admission: &Arc<Admission>,
        from: SocketAddr,
    ) -> Option<(Ipv4Addr, AdmissionPermit)> {
        let source = self.ours(from)?;
        let place = admission.admit(source);
        if place.is_none() {
            self.limiter.dropped(source);
        }
        Some((source, place?))
    }

    fn ours(&self, from: SocketAddr) -> Option<Ipv4Addr> {
        match from.ip() {
            IpAddr::V4(source) if self.range.contains(source) => Some(source),
            _ => None,
        }
    }
}

/// The answer to a question that is not passed on: of a sandbox that may use only some names.
fn judged(rules: &DomainRules, source: Ipv4Addr, query: &[u8]) -> Option<Vec<u8>> {
    let (name, kind) = message::asked(query).unwrap_or((None, 0));
    match rules.judge(source, name.as_deref(), kind) {
        Question::PassOn => None,
        Question::NoRecords => Some(message::no_records(query)),
        Question::Refuse => Some(message::failure(query)),
    }
}

/// Both kinds on the same port.
async fn sockets(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener, u16)> {
    let udp = UdpSocket::bind(address).await?;
    let chosen = udp.local_addr()?;
    Ok((udp, TcpListener::bind(chosen).await?, chosen.port()))
}

/// One question after the other on one connection.
struct TcpConnection {
    source: Ipv4Addr,
    stream: TcpStream,
    upstream: Arc<Upstream>,
    limiter: Arc<QueryLimiter>,
    rules: Arc<DomainRules>,
}

impl TcpConnection {
    async fn hold(mut self) -> io::Result<()> {
        loop {
            let length = match within(IDLE, self.stream.read_u16()).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                length => usize::from(length?),
            };
            if length > LARGEST_QUERY {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the question is too long",
                ));
            }
            let mut query = vec![0; length];
            within(IDLE, self.stream.read_exact(&mut query)).await?;
            if !message::is_query(&query) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not a question"));
            }
            self.limiter.throttle(self.source).await;
            let answer = match judged(&self.rules, self.source, &query) {
                Some(answer) => answer,
                None => self
                    .upstream
                    .ask_tcp(&query)
                    .await
                    .unwrap_or_else(|| message::failure(&query)),
            };
            within(IDLE, self.stream.write_all(&framed(&answer)?)).await?;
        }
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Errors such as a lack of descriptors pass; asking again at once would only burn the processor.
pub(super) async fn rest(doing: &str, error: &io::Error) {
    tracing::warn!(%error, "name server: {doing} failed");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
