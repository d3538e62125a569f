//! The listeners to which the firewall sends connections of sandboxes that have names, and what
//! happens to one of them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use soulbox_outgoing::is_elsewhere;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::first_bytes::FirstBytes;
use super::pipe::pipe;
use super::refusal::{Refused, reset};
use super::rules::DomainRules;
use super::stats::Counters;
use crate::dns::{Admission, Resolver};
use crate::firewall::is_closed;
use crate::{Error, Ipv4Net, NetConfig};

const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Connections of one sandbox, and of all.
const EACH: usize = 256;
const ALL: usize = 2048;
/// Each has two descriptors, and all of them may have this part of what the server may open.
const PART_OF_FILES: u64 = 8;
const CONNECT: Duration = Duration::from_secs(5);
/// Of the addresses of one name.
const ATTEMPTS: usize = 4;
const REST: Duration = Duration::from_millis(100);

/// Bound, and not yet serving.
#[derive(Debug)]
pub(crate) struct Gate {
    http: TcpListener,
    https: TcpListener,
    ports: GatePorts,
    shared: Arc<Shared>,
}

/// Of the gateway, where connections arrive that were for these ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatePorts {
    pub(crate) http: u16,
    pub(crate) https: u16,
}

#[derive(Debug)]
struct Shared {
    range: Ipv4Net,
    open_ranges: Vec<Ipv4Net>,
    rules: Arc<DomainRules>,
    resolver: Resolver,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
}

impl Gate {
    /// On any two ports of the gateway: the firewall knows which.
    pub(crate) async fn bind(
        config: &NetConfig,
        rules: Arc<DomainRules>,
        resolver: Resolver,
    ) -> Result<Self, Error> {
        let address = SocketAddr::from((config.gateway(), 0));
        let failed = |source| Error::GateListen { address, source };
        let http = TcpListener::bind(address).await.map_err(failed)?;
        let https = TcpListener::bind(address).await.map_err(failed)?;
        let ports = GatePorts {
            http: http.local_addr().map_err(failed)?.port(),
            https: https.local_addr().map_err(failed)?.port(),
        };
        let all = most_connections(getrlimit(Resource::Nofile).current);
        Ok(Self {
            http,
            https,
            ports,
            shared: Arc::new(Shared {
                range: config.range,
                open_ranges: config.open_ranges.clone(),
                rules,
                resolver,
                admission: Admission::new(EACH, all),
                counters: Arc::default(),
            }),
        })
    }

    pub(crate) fn ports(&self) -> GatePorts {
        self.ports
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Connections end with it.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let both = async {
            tokio::join!(
                self.shared.accept(&self.http, HTTP),
                self.shared.accept(&self.https, HTTPS),
            )
        };
        stop.run_until_cancelled(both).await;
    }
}

impl Shared {
    async fn accept(self: &Arc<Self>, listener: &TcpListener, port: u16) {
        let mut under_way = JoinSet::new();
        loop {
            while under_way.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((client, from)) => {
                    let shared = Arc::clone(self);
                    under_way.spawn(async move { shared.connection(client, from, port).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "connections by name cannot be accepted");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    async fn connection(&self, mut client: TcpStream, from: SocketAddr, port: u16) {
        let known = match from.ip() {
            IpAddr::V4(sandbox) if self.range.contains(sandbox) => Some(sandbox),
            _ => None,
        };
        let known = known.and_then(|sandbox| Some((sandbox, self.rules.open(sandbox)?)));
        let place = known
            .as_ref()
            .and_then(|(sandbox, _)| self.admission.admit(*sandbox));
        let (Some((sandbox, ended)), Some(_place)) = (known, place) else {
            self.counters.refused();
            return reset(&client);
        };
        let mut first = FirstBytes::default();
        let opening = async {
            let name = first.read_name(&mut client, port).await?;
            self.open(sandbox, &name, port).await
        };
        let server = match ended.run_until_cancelled(opening).await {
            Some(Ok(server)) => server,
            Some(Err(refused)) => {
                self.counters.refused();
                tracing::debug!(%sandbox, port, %refused, "a connection by name is refused");
                return refused.tell(client, first.protocol).await;
            }
            None => return reset(&client),
        };
        let _passing = self.counters.pass();
        let passing = pass_on(&mut client, server, first.bytes);
        if let Some(Err(error)) = ended.run_until_cancelled(passing).await {
            tracing::trace!(%sandbox, port, %error, "a connection by name broke");
            reset(&client);
        }
    }

    async fn open(&self, sandbox: Ipv4Addr, name: &str, port: u16) -> Result<TcpStream, Refused> {
        if !self.rules.allows(sandbox, name) {
            tracing::debug!(%sandbox, name, port, "not in its list");
            return Err(Refused::NotAllowed);
        }
        let addresses = self.resolver.addresses(sandbox, name).await;
        let addresses = addresses.map_err(|error| {
            tracing::debug!(%sandbox, name, %error, "not resolved");
            Refused::Unresolved
        })?;
        let mut refused = Refused::Unresolved;
        for address in addresses.into_iter().take(ATTEMPTS) {
            if !self.may_reach(address) {
                refused = Refused::Closed;
                continue;
            }
            match timeout(CONNECT, TcpStream::connect((address, port))).await {
                Ok(Ok(server)) => return Ok(server),
                Ok(Err(error)) => {
                    tracing::debug!(%sandbox, name, %address, %error, "no connection");
                }
                Err(_) => tracing::debug!(%sandbox, name, %address, "no connection in time"),
            }
            refused = Refused::Unreachable;
        }
        Err(refused)
    }

    /// As for packets of sandboxes: not what is closed for all, no other sandbox, not this host.
    fn may_reach(&self, address: Ipv4Addr) -> bool {
        !is_closed(address, &self.open_ranges)
            && !self.range.contains(address)
            && is_elsewhere(address.into()).unwrap_or(false)
    }
}

async fn pass_on(client: &mut TcpStream, mut server: TcpStream, first: Vec<u8>) -> io::Result<()> {
    // Both ends send small messages and wait for answers.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.write_all(&first).await?;
    drop(first);
    pipe(client, &mut server).await
}

fn most_connections(files: Option<u64>) -> usize {
    let part = files.map_or(usize::MAX, |files| {
        usize::try_from(files / PART_OF_FILES / 2).unwrap_or(usize::MAX)
    });
    part.clamp(1, ALL)
}
