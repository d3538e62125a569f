//! Runs the server once everything is assembled.

use std::{fmt, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::Router;
use soulbox_net::WildcardDns;
use soulbox_proxy::{Proxy, ProxyConfig};
use soulbox_runtime::{Node, Waker};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    backup::{LiveSource, Operator},
    challenges,
    connections::{ConnectionLimiter, ConnectionLimits, Connections, Handler},
    dispatch::Dispatch,
    health::{Health, ReadyNow},
    metrics::{BusyNow, Metrics, OperationsNow, SlotsNow, Sources},
    tls::Tls,
};

/// Mostly it takes milliseconds. What is cut short is left on the machine until the next start.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Operators have a limit of their own: they can connect when clients have reached theirs.
const OPERATORS: usize = 32;

pub(crate) struct Listeners {
    pub(crate) http: TcpListener,
    pub(crate) https: Option<(TcpListener, Tls)>,
    pub(crate) admin: Option<TcpListener>,
    /// Answers questions for the names.
    pub(crate) names: Option<WildcardDns>,
    /// Answers an ACME server, and sends everybody else to HTTPS.
    pub(crate) challenges: Option<TcpListener>,
}

/// What [`crate::wiring`] has assembled.
pub(crate) struct Parts {
    pub(crate) node: Arc<dyn Node>,
    pub(crate) api: Router,
    /// Wakes a paused sandbox when traffic arrives for it; without one the node does.
    pub(crate) waker: Option<Arc<dyn Waker>>,
    pub(crate) slots: Option<SlotsNow>,
    pub(crate) busy: Option<BusyNow>,
    pub(crate) operations: Option<OperationsNow>,
    /// Looks at what `operations` needs, while it is polled.
    pub(crate) sampling: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(crate) ready: Option<ReadyNow>,
    /// For commands of the operator.
    pub(crate) operator: Option<(Operator, LiveSource)>,
    /// For clients.
    pub(crate) limits: ConnectionLimits,
    /// Called as soon as the server stops, before requests are drained.
    pub(crate) stop: Box<dyn FnOnce() + Send>,
    /// Awaited at the very end.
    pub(crate) close: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Listeners {
    pub(crate) fn addresses(&self) -> std::io::Result<Addresses> {
        let of = |listener: &TcpListener| listener.local_addr();
        Ok(Addresses {
            http: of(&self.http)?,
            https: self
                .https
                .as_ref()
                .map(|(listener, _)| of(listener))
                .transpose()?,
            admin: self.admin.as_ref().map(of).transpose()?,
            dns: self.names.as_ref().map(WildcardDns::address).transpose()?,
        })
    }
}

/// Where the server really listens: a port 0 of the configuration is resolved here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) http: SocketAddr,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) dns: Option<SocketAddr>,
}

/// Serves until `shutdown`. Sandboxes keep running.
pub(crate) async fn run(
    listeners: Listeners,
    domain: &str,
    parts: Parts,
    shutdown: impl Future<Output = ()>,
) {
    let mut config = ProxyConfig::new(domain);
    config.stream_limits = parts.limits.streams;
    // Half of what a client may have: behind a reverse proxy all clients have one address.
    config.max_streams_per_sandbox = config
        .max_streams_per_sandbox
        .min((config.stream_limits.max_open / 4).max(1));
    let proxy = Proxy::with_waker(Arc::clone(&parts.node), parts.waker, config);
    let limiter = ConnectionLimiter::new(parts.limits);
    let stopping = CancellationToken::new();
    let health = Health {
        ready: parts.ready,
        stopping: stopping.clone(),
    };
    let metrics = Metrics::new(Sources {
        node: parts.node,
        proxy: proxy.clone(),
        connections: limiter.clone(),
        slots: parts.slots,
        busy: parts.busy,
        operations: parts.operations,
        certificates: listeners
            .https
            .as_ref()
            .map(|(_, tls)| Arc::clone(&tls.certificates)),
    });
    let tokens = listeners
        .https
        .as_ref()
        .and_then(|(_, tls)| Some(tls.renewal.as_ref()?.tokens.clone()));
    let https_port = listeners
        .addresses()
        .ok()
        .and_then(|addresses| Some(addresses.https?.port()));
    let admin_address = listeners.admin.as_ref().and_then(|l| l.local_addr().ok());
    let operators = Connections::new(
        Handler::Operators(admin::router(metrics.clone(), health, admin_address)),
        ConnectionLimiter::new(ConnectionLimits {
            max_open: OPERATORS,
            max_per_client: OPERATORS,
            ..parts.limits
        }),
    );
    let clients = Connections::new(
        Handler::Clients(Dispatch {
            proxy,
            api: parts.api,
            metrics,
            challenges: tokens.clone(),
        }),
        limiter,
    );

    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(clients.clone().accept(listeners.http, None));
    if let Some((listener, tls)) = listeners.https {
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
        tasks.spawn(clients.clone().accept(listener, Some(acceptor)));
        tasks.spawn(async move {
            let renew = async {
                match &tls.renewal {
                    Some(renewal) => renewal.keep().await,
                    None => std::future::pending().await,
                }
            };
            tokio::join!(tls.keep_fresh(), renew);
        });
    }
    if let Some(names) = listeners.names {
        tasks.spawn(names.serve());
    }
    let to_https = Connections::new(
        Handler::Operators(challenges::router(tokens.unwrap_or_default(), https_port)),
        ConnectionLimiter::new(ConnectionLimits {
            max_open: OPERATORS,
            max_per_client: OPERATORS,
            ..parts.limits
        }),
    );
    if let Some(listener) = listeners.challenges {
        tasks.spawn(to_https.clone().accept(listener, None));
    }
    if let Some(listener) = listeners.admin {
        tasks.spawn(operators.clone().accept(listener, None));
    }
    if let Some(sampling) = parts.sampling {
        tasks.spawn(sampling);
    }
    if let Some((operator, source)) = parts.operator {
        tasks.spawn(operator.serve(source, stopping.clone()));
    }
    shutdown.await;
    stopping.cancel();
    tracing::info!("stopping; sandboxes go on");
    (parts.stop)();
    clients.drain().await;
    operators.drain().await;
    to_https.drain().await;
    tasks.shutdown().await;
    if tokio::time::timeout(CLOSE_TIMEOUT, parts.close)
        .await
        .is_err()
    {
        tracing::warn!("closing took too long; the next start clears up");
    }
}

#[cfg(test)]
mod tests;
