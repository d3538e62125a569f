//! Why a connection is not passed on, and what the program at its other end is told.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::first_bytes::Protocol;

/// For the other end to read what it is told, and to close.
const FAREWELL: Duration = Duration::from_secs(1);
const MOST_UNREAD: u64 = 64 << 10;

/// TLS's alert `access_denied`, fatal, in a record of its own.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("this is neither TLS nor HTTP/1.1; open such a service by its address in allowOut")]
    NotTls,
    #[error("this request is not valid HTTP/1.1")]
    NotHttp,
    #[error("the first message is too long")]
    TooLong,
    #[error("nothing was sent in time")]
    TooLate,
    #[error("no host is named (SNI in TLS, Host in HTTP); open it by its address in allowOut")]
    NoName,
    #[error("more than one host is named")]
    TwoNames,
    #[error("what is named is no host name")]
    NotAName,
    #[error("the host that is named cannot be told: switch off Encrypted Client Hello")]
    EncryptedHello,
    #[error("requests to a proxy are not passed on")]
    Proxying,
    #[error("the host has another port than this connection")]
    OtherPort,
    #[error("this host is not in the sandbox's allowOut")]
    NotAllowed,
    #[error("this host has only addresses that no sandbox may reach")]
    Closed,
    #[error("the name of this host cannot be resolved")]
    Unresolved,
    #[error("this host cannot be reached")]
    Unreachable,
}

impl Refused {
    /// Whether it is the way there that fails, and not the policy.
    fn is_failure(self) -> bool {
        matches!(self, Self::Unresolved | Self::Unreachable)
    }

    /// Tells the program, in its protocol, and closes.
    pub(super) async fn tell(self, mut client: TcpStream, protocol: Option<Protocol>) {
        let told = match protocol {
            Some(Protocol::Http) => self.page().into_bytes(),
            // As if the server itself were not there.
            Some(Protocol::Tls) if !self.is_failure() => ALERT.to_vec(),
            _ => return reset(&client),
        };
        let farewell = async {
            client.write_all(&told).await?;
            client.shutdown().await?;
            // Closing with something unread would reset the connection, and what was told with it.
            let mut rest = client.take(MOST_UNREAD);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        drop(timeout(FAREWELL, farewell).await);
    }

    fn page(self) -> String {
        let status = match self {
            Self::NotHttp | Self::TooLong => "400 Bad Request",
            Self::TooLate => "408 Request Timeout",
            Self::Unresolved | Self::Unreachable => "502 Bad Gateway",
            _ => "403 Forbidden",
        };
        let body = format!("SoulBox's network rules for this sandbox: {self}.\n");
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

/// Closed when dropped, with a reset instead of an orderly end.
pub(super) fn reset(stream: &TcpStream) {
    let at_once = Some(Duration::ZERO);
    let _closed_anyway = rustix::net::sockopt::set_socket_linger(stream, at_once);
}
