//! Connections to the very address that was checked: a name that is public when it is looked at and
//! private when it is connected to gains nothing.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use crate::leads_outside;

/// All addresses of a host.
pub async fn resolve(host: &str, port: u16, limit: Duration) -> io::Result<Vec<SocketAddr>> {
    match timeout(limit, tokio::net::lookup_host((host, port))).await {
        Ok(found) => found.map(Iterator::collect),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Those of them whose packets leave this machine for the internet.
pub fn only_outside(addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let mut outside = Vec::new();
    for address in addresses {
        if leads_outside(address.ip())? {
            outside.push(address);
        }
    }
    Ok(outside)
}

/// Connects to the first of them that answers; `limit` is for each.
pub async fn connect_any(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let mut last: io::Error = io::ErrorKind::NotFound.into();
    for address in addresses {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
