//! How a connection's bytes travel.

use tokio_rustls::server::TlsStream;

use super::socket::LimitedSocket;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
    /// Clients that make a URL out of a sandbox's host name take `http` if it has a port.
    PlainOnTlsPort,
}

pub(super) enum Handshake {
    Tls(Box<TlsStream<LimitedSocket>>),
    Plain(LimitedSocket),
}
