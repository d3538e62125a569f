//! Answers for sandboxes that may not ask for names: "server failure", at once. The firewall sends
//! their questions here and nowhere else, so nothing of them can get out.
//!
//! Not an ICMP error: the resolver library gets those too and waits for its five seconds all the same.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::UdpSocket;

use super::forwarder::{LARGEST_QUERY, rest};
use super::message;
use crate::Ipv4Net;

#[derive(Debug)]
pub(super) struct Refuser {
    socket: UdpSocket,
    range: Ipv4Net,
    port: u16,
}

impl Refuser {
    /// On any port: the firewall knows which.
    pub(super) async fn bind(gateway: Ipv4Addr, range: Ipv4Net) -> io::Result<Self> {
        let socket = UdpSocket::bind((gateway, 0)).await?;
        let port = socket.local_addr()?.port();
        Ok(Self {
            socket,
            range,
            port,
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) async fn serve(&self) {
        let mut buffer = vec![0; LARGEST_QUERY + 1];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => self.refuse(&buffer[..length], from).await,
                Err(error) => rest("receiving questions that are not allowed", &error).await,
            }
        }
    }

    async fn refuse(&self, query: &[u8], from: SocketAddr) {
        let ours = matches!(from.ip(), IpAddr::V4(source) if self.range.contains(source));
        if ours && query.len() <= LARGEST_QUERY && message::is_query(query) {
            // A sandbox that is gone, or a full buffer: UDP may lose it.
            self.socket
                .send_to(&message::failure(query), from)
                .await
                .ok();
        }
    }
}
