//! Reads as much of a connection as it takes to know which host it is for.

use std::time::Duration;

use soulbox_types::host_name;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use super::refusal::Refused;
use super::{head, hello};

/// From the first byte to the last that is needed. Clients send them at once.
const TIME: Duration = Duration::from_secs(10);
const FIRST: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tls,
    Http,
}

/// What was read, which belongs to the server.
#[derive(Debug, Default)]
pub(super) struct FirstBytes {
    pub(super) bytes: Vec<u8>,
    pub(super) protocol: Option<Protocol>,
}

impl FirstBytes {
    /// The name in the form in which names are compared. `port` is the one that was connected to.
    pub(super) async fn read_name(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        port: u16,
    ) -> Result<String, Refused> {
        timeout(TIME, self.read(stream, port))
            .await
            .unwrap_or(Err(Refused::TooLate))
    }

    async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        port: u16,
    ) -> Result<String, Refused> {
        self.bytes.reserve(FIRST);
        self.more(stream, hello::LARGEST).await?;
        if self.bytes[0] == hello::HANDSHAKE {
            self.protocol = Some(Protocol::Tls);
            return self.read_hello(stream).await;
        }
        if !head::may_become_http(&self.bytes) {
            return Err(Refused::NotTls);
        }
        self.protocol = Some(Protocol::Http);
        self.read_head(stream, port).await
    }

    async fn read_hello(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<String, Refused> {
        loop {
            match hello::read(&self.bytes)? {
                hello::Hello::Name(name) => return host_name(&name).ok_or(Refused::NotAName),
                hello::Hello::Needs(length) => {
                    while self.bytes.len() < length {
                        self.more(stream, hello::LARGEST).await?;
                    }
                }
            }
        }
    }

    async fn read_head(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        port: u16,
    ) -> Result<String, Refused> {
        let mut seen = 0;
        let end = loop {
            if let Some(end) = head::end(&self.bytes, seen) {
                break end;
            }
            seen = self.bytes.len();
            self.more(stream, head::LARGEST).await?;
        };
        let (name, named_port) = head::read(&self.bytes[..end])?;
        if named_port.is_some_and(|named| named != port) {
            return Err(Refused::OtherPort);
        }
        host_name(&name).ok_or(Refused::NotAName)
    }

    async fn more(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<(), Refused> {
        let left = most.saturating_sub(self.bytes.len());
        if left == 0 {
            return Err(Refused::TooLong);
        }
        let mut bounded = stream.take(left as u64);
        match bounded.read_buf(&mut self.bytes).await {
            Ok(1..) => Ok(()),
            // It ended, or broke: there is nobody to tell anything.
            Ok(0) | Err(_) => Err(Refused::NoName),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::hello::samples::{Sample, in_records};
    use super::*;

    async fn read(bytes: &[u8], port: u16) -> (Result<String, Refused>, FirstBytes) {
        let (mut near, mut far) = tokio::io::duplex(3);
        let bytes = bytes.to_vec();
        let sending = tokio::spawn(async move {
            drop(far.write_all(&bytes).await);
            std::future::pending::<()>().await;
        });
        let mut first = FirstBytes::default();
        let name = first.read_name(&mut near, port).await;
        sending.abort();
        (name, first)
    }

    #[tokio::test(start_paused = true)]
    async fn the_name_is_the_same_in_both_protocols_and_nothing_read_is_lost() {
        let hello = in_records(&Sample::of("Example.COM").message(), 30);
        let request = b"GET / HTTP/1.1\r\nHost: example.com.:80\r\n\r\n".to_vec();
        for (sent, protocol) in [(hello, Protocol::Tls), (request, Protocol::Http)] {
            let (name, first) = read(&sent, 80).await;
            assert_eq!(name, Ok("example.com".to_owned()));
            assert_eq!((first.protocol, &first.bytes), (Some(protocol), &sent));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_noise_and_floods_come_to_an_end() {
        let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 40_000]].concat();
        let other = b"GET / HTTP/1.1\r\nHost: a.com:8080\r\n\r\n".to_vec();
        for (sent, expected) in [
            (b"".to_vec(), Refused::TooLate),
            (
                b"GET / HTTP/1.1\r\nHost: a.com\r\n".to_vec(),
                Refused::TooLate,
            ),
            (b"\x16\x03\x01".to_vec(), Refused::TooLate),
            (b"SSH-2.0-x".to_vec(), Refused::TooLate),
            (b"\0\x01".to_vec(), Refused::NotTls),
            (endless, Refused::TooLong),
            (other, Refused::OtherPort),
            (
                in_records(&Sample::of("1.2.3.4").message(), 500),
                Refused::NotAName,
            ),
        ] {
            assert_eq!(read(&sent, 80).await.0, Err(expected), "{sent:?}");
        }
    }
}
