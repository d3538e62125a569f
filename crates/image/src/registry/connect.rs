//! Connections to the very address that was checked: a name that is public when it is looked at
//! and private when it is connected to gains nothing.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use soulbox_outgoing::{PooledStream, Tls, TlsError, connect_any, only_outside, resolve};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower::Service;

use super::policy::{Policy, Scheme, Target};
use crate::{Error, ImageConfig, Result};

/// What one of several addresses gets at least: a packet may be lost and sent again.
const LEAST_FOR_ONE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Connector {
    policy: Arc<Policy>,
    limit: Duration,
    tls: Tls,
}

impl Connector {
    pub(crate) fn new(config: &ImageConfig, policy: Arc<Policy>) -> Self {
        Self {
            policy,
            limit: config.timeouts.connect,
            tls: Tls::new(config.extra_ca.clone()),
        }
    }

    /// Whether a registry that may speak either speaks TLS.
    pub(crate) async fn speaks_tls(&self, target: &Target) -> Result<bool> {
        let tcp = match self.tcp(target).await {
            Ok(tcp) => tcp,
            // Nobody on the port for https; maybe on the one for http.
            Err(Error::Connect { .. }) if target.port == 443 => return Ok(false),
            Err(error) => return Err(error),
        };
        match self.encrypt(target, tcp).await? {
            Ok(_) => Ok(true),
            Err(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
                let not_tls = matches!(inner, Some(rustls::Error::InvalidMessage(_)))
                    || matches!(
                        error.kind(),
                        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                    );
                if not_tls {
                    Ok(false)
                } else {
                    Err(tls_error(target, &error))
                }
            }
        }
    }

    async fn connect(self, uri: Uri) -> Result<PooledStream> {
        let target = Target::of(&uri).ok_or_else(|| Error::Redirect {
            host: uri.host().unwrap_or("the registry").to_owned(),
            reason: "it is neither an http nor an https address".to_owned(),
        })?;
        let tcp = self.tcp(&target).await?;
        match target.scheme {
            Scheme::Http => Ok(PooledStream::new(tcp)),
            Scheme::Https => match self.encrypt(&target, tcp).await? {
                Ok(stream) => Ok(PooledStream::new(stream)),
                Err(error) => Err(tls_error(&target, &error)),
            },
        }
    }

    async fn tcp(&self, target: &Target) -> Result<TcpStream> {
        if target.scheme == Scheme::Http && !self.policy.allows_http(target) {
            return Err(Error::PlainHttp {
                host: target.shown(),
            });
        }
        let addresses = self.resolve(target).await?;
        // A name may have many addresses behind the same line that is down: they share the limit.
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let each = (self.limit / count).max(LEAST_FOR_ONE.min(self.limit));
        connect_any(&addresses, each)
            .await
            .map_err(|error| connect_error(target, &error))
    }

    async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>> {
        let found = resolve(&target.host, target.port, self.limit).await;
        if self.policy.may_be_private(target) {
            return found.map_err(|error| connect_error(target, &error));
        }
        let found = only_outside(found.unwrap_or_default())
            .map_err(|error| connect_error(target, &error))?;
        let host = target.shown();
        if !found.is_empty() {
            Ok(found)
        } else if target.is_plainly_private() {
            Err(Error::PrivateAddress { host })
        } else {
            // Whether the name is known in the operator's own network is nobody else's business.
            Err(Error::NoPublicAddress { host })
        }
    }

    /// The inner error is the handshake's.
    async fn encrypt(
        &self,
        target: &Target,
        tcp: TcpStream,
    ) -> Result<io::Result<TlsStream<TcpStream>>> {
        match self.tls.connect(&target.host, tcp, self.limit).await {
            Ok(stream) => Ok(Ok(stream)),
            Err(TlsError::Handshake(error)) => Ok(Err(error)),
            Err(TlsError::Roots(error)) => Err(Error::Roots(error)),
        }
    }
}

fn connect_error(target: &Target, error: &io::Error) -> Error {
    Error::Connect {
        host: target.shown(),
        cause: error.to_string(),
    }
}

fn tls_error(target: &Target, error: &io::Error) -> Error {
    let host = target.shown();
    let cause = error.to_string();
    match error.kind() {
        // Not the certificate's fault: the line's.
        io::ErrorKind::TimedOut | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
            Error::Connect { host, cause }
        }
        _ => Error::Tls { host, cause },
    }
}

impl Service<Uri> for Connector {
    type Response = PooledStream;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<PooledStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_very_machine_is_not_a_registry_although_it_is_a_public_one() {
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
                let uri = "https://203.0.113.7:5000/v2/".parse().unwrap();
                let target = Target::of(&uri).unwrap();
                let config = ImageConfig::default();
                let policy = Arc::new(Policy::new(&config).unwrap());
                let refused = Connector::new(&config, policy).resolve(&target).await;
                assert!(
                    matches!(refused, Err(Error::PrivateAddress { .. })),
                    "{refused:?}"
                );
                let config = ImageConfig {
                    allow: vec!["203.0.113.7:5000".to_owned()],
                    ..ImageConfig::default()
                };
                let policy = Arc::new(Policy::new(&config).unwrap());
                let found = Connector::new(&config, policy)
                    .resolve(&target)
                    .await
                    .unwrap();
                assert_eq!(found.len(), 1, "the operator allows it");
            });
        });
        test.join().unwrap();
    }
}
