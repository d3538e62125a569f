//! The name servers that questions are passed on to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

use super::message;

/// How long one server is waited for, and how many are asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;
const LARGEST: usize = 65_535;
/// The host's configuration is looked at again after this time.
const RECHECK: Duration = Duration::from_secs(2);

/// Given servers, or those in a `resolv.conf`, which may change while we run.
#[derive(Debug)]
pub(super) struct Upstream {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Fixed(Vec<SocketAddr>),
    File { path: PathBuf, seen: Mutex<Seen> },
}

#[derive(Debug, Clone, Default)]
struct Seen {
    servers: Vec<SocketAddr>,
    changed: Option<SystemTime>,
    looked: Option<Instant>,
}

impl Upstream {
    pub(super) fn new(fixed: &[SocketAddr], file: impl Into<PathBuf>) -> Self {
        let source = if fixed.is_empty() {
            Source::File {
                path: file.into(),
                seen: Mutex::default(),
            }
        } else {
            Source::Fixed(fixed.to_vec())
        };
        Self { source }
    }

    /// The servers to try in order: the list again from the start until the attempts are used up.
    async fn servers(&self) -> Vec<SocketAddr> {
        let servers = match &self.source {
            Source::Fixed(servers) => servers.clone(),
            Source::File { path, seen } => current(path, seen).await,
        };
        servers
            .iter()
            .copied()
            .cycle()
            .take(ATTEMPTS.max(servers.len().min(4)))
            .collect()
    }

    /// Asks over UDP, from a new port with a new identifier each time.
    pub(super) async fn ask_udp(&self, query: &[u8]) -> Option<Vec<u8>> {
        self.ask(Transport::Udp, query).await
    }

    pub(super) async fn ask_tcp(&self, query: &[u8]) -> Option<Vec<u8>> {
        self.ask(Transport::Tcp, query).await
    }

    /// The first answer. One that refuses is not asked again, and its refusal counts only when nobody has
    /// more to say: it may be for some names alone, as the one that `soulbox trust` puts first.
    async fn ask(&self, transport: Transport, query: &[u8]) -> Option<Vec<u8>> {
        let mut refusals: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
        for server in self.servers().await {
            if refusals.iter().any(|(refusing, _)| *refusing == server) {
                continue;
            }
            let exchange = async {
                match transport {
                    Transport::Udp => udp(server, query).await,
                    Transport::Tcp => tcp(server, query).await,
                }
            };
            match timeout(TIMEOUT, exchange).await {
                Ok(Ok(answer)) if message::is_refusal(&answer) => refusals.push((server, answer)),
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "name server failed"),
                Err(_) => tracing::debug!(%server, "name server is silent"),
            }
        }
        refusals.pop().map(|(_, answer)| answer)
    }
}

#[derive(Debug, Clone, Copy)]
enum Transport {
    Udp,
    Tcp,
}

async fn udp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // Connected: the kernel hands us only what comes from this server.
    socket.connect(server).await?;
    let asked = with_new_id(query)?;
    socket.send(&asked).await?;
    let mut answer = Vec::with_capacity(LARGEST);
    loop {
        answer.clear();
        socket.recv_buf(&mut answer).await?;
        if message::answers(&answer, &asked) {
            message::set_id(&mut answer, message::id(query));
            answer.shrink_to_fit();
            return Ok(answer);
        }
    }
}

async fn tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let asked = with_new_id(query)?;
    stream.write_all(&framed(&asked)?).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    if !message::answers(&answer, &asked) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer is for another question",
        ));
    }
    message::set_id(&mut answer, message::id(query));
    Ok(answer)
}

/// A message behind its length, as TCP carries it, in one buffer for one packet.
pub(super) fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok([&length.to_be_bytes(), message].concat())
}

/// The sandbox chose its identifier; one that it cannot know keeps it from forging answers.
fn with_new_id(query: &[u8]) -> io::Result<Vec<u8>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
    let mut asked = query.to_vec();
    message::set_id(&mut asked, id);
    Ok(asked)
}

async fn current(path: &Path, seen: &Mutex<Seen>) -> Vec<SocketAddr> {
    let last = seen.lock().clone();
    if last.looked.is_some_and(|looked| looked.elapsed() < RECHECK) {
        return last.servers;
    }
    let changed = tokio::fs::metadata(path)
        .await
        .and_then(|file| file.modified())
        .ok();
    let mut next = Seen {
        looked: Some(Instant::now()),
        ..last
    };
    if changed.is_none() || changed != next.changed {
        let text = tokio::fs::read_to_string(path).await.unwrap_or_default();
        next.servers = name_servers(&text);
        next.changed = changed;
        tracing::debug!(servers = ?next.servers, "name servers of the host");
    }
    let servers = next.servers.clone();
    *seen.lock() = next;
    servers
}

/// The `nameserver` lines; without any, the one on this host, as the resolver library has it.
fn name_servers(text: &str) -> Vec<SocketAddr> {
    let servers: Vec<SocketAddr> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .collect();
    if servers.is_empty() {
        vec![SocketAddr::from(([127, 0, 0, 1], 53))]
    } else {
        servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_gives_its_servers_in_order() {
        let text = "# c\nsearch x\nnameserver 192.0.2.1\n nameserver\t::1 # b\nnameserver fe80::1%eth0\nnameserver bad\n";
        assert_eq!(
            name_servers(text),
            [
                "192.0.2.1:53".parse().unwrap(),
                "[::1]:53".parse::<SocketAddr>().unwrap()
            ]
        );
        assert_eq!(name_servers(""), ["127.0.0.1:53".parse().unwrap()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        std::fs::write(&file, "nameserver 192.0.2.1\n").unwrap();
        let upstream = Upstream::new(&[], &file);
        assert_eq!(upstream.servers().await[0], "192.0.2.1:53".parse().unwrap());
        std::fs::write(&file, "nameserver 192.0.2.2\n").unwrap();
        let later = SystemTime::now() + Duration::from_mins(1);
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(later)
            .unwrap();
        tokio::time::advance(RECHECK).await;
        assert_eq!(upstream.servers().await[0], "192.0.2.2:53".parse().unwrap());
    }

    #[tokio::test]
    async fn a_server_that_refuses_a_name_leaves_it_to_the_next() {
        use crate::dns::wildcard::WildcardDns;
        use std::net::Ipv4Addr;

        let mut servers = Vec::new();
        for (domain, answer) in [("sbx.test", [127, 0, 0, 1]), ("corp.test", [192, 0, 2, 80])] {
            let any = "127.0.0.1:0".parse().unwrap();
            let server = WildcardDns::bind(any, domain, Ipv4Addr::from(answer).into())
                .await
                .unwrap();
            servers.push(server.address().unwrap());
            tokio::spawn(server.serve());
        }
        let upstream = Upstream::new(&servers, "/nonexistent");
        let asked = |first: &[u8]| {
            let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            query.push(u8::try_from(first.len()).unwrap());
            query.extend_from_slice(first);
            query.extend_from_slice(&[4, b't', b'e', b's', b't', 0, 0, 1, 0, 1]);
            query
        };
        for (query, end) in [
            (asked(b"corp"), [192, 0, 2, 80]),
            (asked(b"sbx"), [127, 0, 0, 1]),
        ] {
            for answer in [
                upstream.ask_udp(&query).await,
                upstream.ask_tcp(&query).await,
            ] {
                assert!(answer.unwrap().ends_with(&end));
            }
        }
        let unknown = upstream.ask_udp(&asked(b"else")).await.unwrap();
        assert!(message::is_refusal(&unknown));
    }
}
