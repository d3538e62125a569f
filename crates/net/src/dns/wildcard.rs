//! The name server of `soulbox dns`: one domain and everything under it has one address. For those
//! whose resolver does not know `*.localhost`, or who want a domain of their own on one machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::message;
use super::upstream::framed;

const TTL: u32 = 60;
const IDLE: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 64;
const LARGEST_QUERY: usize = 4096;
/// The UDP payload size that we advertise to clients.
const UDP_PAYLOAD: u16 = 1232;

/// A name server for one domain, bound and not yet answering.
#[derive(Debug)]
pub struct WildcardDns {
    udp: UdpSocket,
    tcp: TcpListener,
    zone: Arc<Zone>,
}

impl WildcardDns {
    /// It will answer for `domain` and all names under it, and refuse other names.
    pub async fn bind(listen: SocketAddr, domain: &str, answer: IpAddr) -> io::Result<Self> {
        let mut domain = Name::from_ascii(domain)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        domain.set_fqdn(true);
        let udp = UdpSocket::bind(listen).await?;
        // With port 0, both on the port that was given to the first.
        let tcp = TcpListener::bind(udp.local_addr()?).await?;
        Ok(Self {
            udp,
            tcp,
            zone: Arc::new(Zone { domain, answer }),
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// For ever.
    pub async fn serve(self) {
        tokio::join!(
            serve_udp(&self.udp, &self.zone),
            serve_tcp(&self.tcp, &self.zone)
        );
    }
}

/// Answers until `shutdown` completes. `bound` gets the address as soon as queries are accepted.
pub async fn wildcard_dns(
    listen: SocketAddr,
    domain: &str,
    answer: IpAddr,
    bound: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let server = WildcardDns::bind(listen, domain, answer).await?;
    let address = server.address()?;
    tracing::info!(%address, domain, "answering names");
    bound(address);
    tokio::select! {
        () = server.serve() => {}
        () = shutdown => {}
    }
    Ok(())
}

#[derive(Debug)]
struct Zone {
    domain: Name,
    answer: IpAddr,
}

impl Zone {
    /// Nothing for what is no query: answering garbage would make us a tool for reflection.
    fn reply(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() < message::HEADER || bytes.len() > LARGEST_QUERY {
            return None;
        }
        let Ok(query) = Message::from_vec(bytes) else {
            return message::is_query(bytes).then(|| message::failure(bytes));
        };
        if query.metadata.message_type != MessageType::Query {
            return None;
        }
        self.answer_to(&query).to_vec().ok()
    }

    fn answer_to(&self, query: &Message) -> Message {
        let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
        reply.metadata = Metadata::response_from_request(&query.metadata);
        if query.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(UDP_PAYLOAD);
            reply.set_edns(edns);
        }
        reply.metadata.response_code = match query.queries.as_slice() {
            _ if query.metadata.op_code != OpCode::Query => ResponseCode::NotImp,
            [question] => {
                reply.add_query(question.clone());
                if question.query_class() != DNSClass::IN || !self.domain.zone_of(question.name()) {
                    ResponseCode::Refused
                } else {
                    reply.metadata.authoritative = true;
                    // Other types exist with no records: `AAAA` must not say "no such name".
                    reply.add_answers(self.record(question.name(), question.query_type()));
                    ResponseCode::NoError
                }
            }
            _ => ResponseCode::FormErr,
        };
        reply
    }

    fn record(&self, name: &Name, kind: RecordType) -> Option<Record> {
        let data = match (self.answer, kind) {
            (IpAddr::V4(address), RecordType::A | RecordType::ANY) => RData::A(address.into()),
            (IpAddr::V6(address), RecordType::AAAA | RecordType::ANY) => {
                RData::AAAA(address.into())
            }
            _ => return None,
        };
        Some(Record::from_rdata(name.clone(), TTL, data))
    }
}

async fn serve_udp(socket: &UdpSocket, zone: &Zone) {
    let mut buffer = vec![0; LARGEST_QUERY + 1];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, from)) => {
                if let Some(reply) = zone.reply(&buffer[..length]) {
                    socket.send_to(&reply, from).await.ok();
                }
            }
            Err(error) => rest(&error).await,
        }
    }
}

async fn serve_tcp(listener: &TcpListener, zone: &Arc<Zone>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) if connections.len() < CONNECTIONS => {
                let zone = Arc::clone(zone);
                connections.spawn(async move { serve_connection(stream, &zone).await });
            }
            Ok(_) => {}
            Err(error) => rest(&error).await,
        }
    }
}

async fn serve_connection(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    let exchange = async |stream: &mut TcpStream| {
        let mut query = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut query).await?;
        let reply = zone.reply(&query).ok_or(io::ErrorKind::InvalidData)?;
        stream.write_all(&framed(&reply)?).await
    };
    loop {
        timeout(IDLE, exchange(&mut stream))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
    }
}

async fn rest(error: &io::Error) {
    tracing::warn!(%error, "name server: receiving failed");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::Query;

    use super::*;

    fn zone() -> Zone {
        Zone {
            domain: Name::from_ascii("sbx.localhost.").unwrap(),
            answer: Ipv4Addr::LOCALHOST.into(),
        }
    }

    fn ask(name: &str, kind: RecordType) -> Message {
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        Message::from_vec(&zone().reply(&query.to_vec().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn the_domain_and_everything_under_it_has_the_address() {
        for name in [
            "sbx.localhost.",
            "8080-abc.sbx.localhost.",
            "A.B.SBX.LOCALHOST.",
        ] {
            let reply = ask(name, RecordType::A);
            assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
            assert_eq!(reply.metadata.id, 7);
            assert_eq!(reply.answers[0].data, RData::A(Ipv4Addr::LOCALHOST.into()));
        }
    }

    #[test]
    fn other_types_exist_without_records() {
        let reply = ask("x.sbx.localhost.", RecordType::AAAA);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        assert!(reply.answers.is_empty());
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["localhost.", "example.org.", "notsbx.localhost."] {
            assert_eq!(
                ask(name, RecordType::A).metadata.response_code,
                ResponseCode::Refused
            );
        }
    }

    #[test]
    fn hostile_bytes_get_no_panic_and_no_answer_to_answers() {
        let zone = zone();
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(
            Name::from_ascii("sbx.localhost.").unwrap(),
            RecordType::A,
        ));
        let bytes = query.to_vec().unwrap();
        for cut in 0..bytes.len() {
            for flip in 0..=255u8 {
                let mut broken = bytes.clone();
                broken[cut] ^= flip;
                zone.reply(&broken);
                zone.reply(&broken[..cut]);
            }
        }
        let answer = zone.reply(&bytes).unwrap();
        assert_eq!(zone.reply(&answer), None);
        assert_eq!(zone.reply(&vec![0; 65_535]), None);
    }

    #[tokio::test]
    async fn both_transports_answer_and_stop_when_told() {
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let answer = Ipv4Addr::LOCALHOST.into();
            let stop = async { drop(stopped.await) };
            wildcard_dns(port, "sbx.localhost", answer, drop, stop).await
        });
        let mut query = Message::new(9, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(
            Name::from_ascii("a.sbx.localhost.").unwrap(),
            RecordType::A,
        ));
        let bytes = query.to_vec().unwrap();

        let connecting = async {
            loop {
                match TcpStream::connect(port).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let mut stream = timeout(IDLE, connecting).await.unwrap();
        stream.write_all(&framed(&bytes).unwrap()).await.unwrap();
        let mut over_tcp = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut over_tcp).await.unwrap();

        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&bytes, port).await.unwrap();
        let mut over_udp = vec![0; 512];
        let length = socket.recv(&mut over_udp).await.unwrap();
        assert_eq!(over_udp[..length], over_tcp);

        stop.send(()).unwrap();
        timeout(IDLE, server).await.unwrap().unwrap().unwrap();
    }
}
