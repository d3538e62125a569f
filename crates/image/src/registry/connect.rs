//! Connections to the very address that was checked: a name that is public when it is looked at
//! and private when it is connected to gains nothing.

use std::{
    fmt, io,
    net::SocketAddr,
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
use soulbox_outgoing::{InterimLimit, LimitedStream, leads_outside};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::Service;

use super::{
    policy::{Policy, Scheme, Target},
    tls,
};
use crate::{Error, ImageConfig, Result, error::blocking};

#[derive(Clone)]
pub(crate) struct Connector {
    policy: Arc<Policy>,
    limit: Duration,
    extra_ca: Option<PathBuf>,
    /// Made at the first https connection.
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(config: &ImageConfig, policy: Arc<Policy>) -> Self {
        Self {
            policy,
            limit: config.timeouts.connect,
            extra_ca: config.extra_ca.clone(),
            tls: Arc::default(),
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

    async fn connect(self, uri: Uri) -> Result<Stream> {
        let target = Target::of(&uri).ok_or_else(|| Error::Redirect {
            host: uri.host().unwrap_or("the registry").to_owned(),
            reason: "it is neither an http nor an https address".to_owned(),
        })?;
        let tcp = self.tcp(&target).await?;
        match target.scheme {
            Scheme::Http => Ok(Stream::new(tcp)),
            Scheme::Https => match self.encrypt(&target, tcp).await? {
                Ok(stream) => Ok(Stream::new(stream)),
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
        let mut last: io::Error = io::ErrorKind::NotFound.into();
        for address in self.resolve(target).await? {
            match timeout(self.limit, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(connect_error(target, &last))
    }

    async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>> {
        let lookup = tokio::net::lookup_host((target.host.as_str(), target.port));
        let found = match timeout(self.limit, lookup).await {
            Ok(found) => found.map(Iterator::collect::<Vec<_>>),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        if self.policy.may_be_private(target) {
            return found.map_err(|error| connect_error(target, &error));
        }
        let mut outside = Vec::new();
        for address in found.unwrap_or_default() {
            let leads = leads_outside(address.ip());
            if leads.map_err(|error| connect_error(target, &error))? {
                outside.push(address);
            }
        }
        let found = outside;
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
    ) -> Result<io::Result<tokio_rustls::client::TlsStream<TcpStream>>> {
        let name = match ServerName::try_from(target.host.clone()) {
            Ok(name) => name,
            Err(error) => return Ok(Err(io::Error::other(error))),
        };
        let connector = TlsConnector::from(self.tls().await?);
        match timeout(self.limit, connector.connect(name, tcp)).await {
            Ok(done) => Ok(done),
            Err(_) => Ok(Err(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let extra = self.extra_ca.clone();
        let read = move || tls::client_config(extra.as_deref()).map_err(Error::Roots);
        let config = blocking(read).await?;
        Ok(Arc::clone(self.tls.get_or_init(|| config)))
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
    type Response = Stream;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
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
