//! Listening sockets.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use tokio::net::{TcpListener, TcpSocket};

/// Clients with one host name per sandbox connect in bursts of hundreds.
const BACKLOG: u32 = 4096;
/// Detects a client that vanished without closing the connection, after a few minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_mins(2);

/// `option` is named in the error when the address is not available.
pub(crate) fn bind(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    match try_bind(address) {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "{address} is in use by another program (`ss -ltnp` shows which). Stop it, or choose \
             another address with {option}"
        ),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            bail!("{address} is not an address of this machine: correct {option}")
        }
        Err(error) => {
            Err(error).with_context(|| format!("could not listen on {address} ({option})"))
        }
    }
}

fn try_bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit these.
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    rustix::net::sockopt::set_tcp_keepidle(&socket, KEEPALIVE_AFTER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_refused_with_the_option_that_changes_it() {
        let first = bind("127.0.0.1:0".parse().unwrap(), "--listen").unwrap();
        let error = bind(first.local_addr().unwrap(), "--listen")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("in use") && error.contains("--listen"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_foreign_address_is_refused() {
        let error = bind("192.0.2.1:0".parse().unwrap(), "--https")
            .unwrap_err()
            .to_string();
        assert!(error.contains("--https"), "{error}");
    }
}
