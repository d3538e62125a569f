//! Egress by name: real connections from real namespaces, to hosts whose names a name server of the
//! test tells.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use soulbox_net::{ByNameStats, EgressPolicy, NetConfig, Network};
use tokio_util::task::AbortOnDropHandle;

use crate::bed::{Bed, Internet, LIMIT, SOON, eventually, inside, reach, rule, run, skipped};

/// Nobody has it: what is connected to is what the name says.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

pub(crate) fn names(allowed: &[&str]) -> EgressPolicy {
    EgressPolicy {
        internet: true,
        allow: Vec::new(),
        allow_names: allowed.iter().map(|name| name.parse().unwrap()).collect(),
        deny: vec![rule("0.0.0.0/0", None)],
    }
}

/// A network whose sandboxes and whose gate ask a name server that knows these hosts.
struct Named {
    network: Network,
    config: NetConfig,
    _server: AbortOnDropHandle<()>,
}

impl Named {
    async fn open(bed: &Bed, hosts: &[(&str, Ipv4Addr)]) -> Self {
        let hosts = hosts
            .iter()
            .map(|(name, address)| (format!("{name}."), *address));
        let (upstream, server) = name_server(hosts.collect()).await;
        let config = NetConfig {
            upstream_dns: vec![upstream],
            ..bed.config()
        };
        Self {
            network: Network::open(config.clone()).await.unwrap(),
            config,
            _server: server,
        }
    }
}

async fn name_server(hosts: HashMap<String, Ipv4Addr>) -> (SocketAddr, AbortOnDropHandle<()>) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let serve = async move {
        let mut buffer = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let query = Message::from_vec(&buffer[..length]).unwrap();
            let question = query.queries[0].clone();
            let mut answer = Message::response(query.metadata.id, OpCode::Query);
            let known = hosts.get(&question.name().to_string().to_lowercase());
            match known {
                Some(address) if question.query_type() == RecordType::A => {
                    let data = RData::A((*address).into());
                    answer.add_answer(Record::from_rdata(question.name().clone(), 60, data));
                }
                Some(_) => {}
                None => answer.metadata.response_code = ResponseCode::NXDomain,
            }
            answer.add_query(question);
            let answer = answer.to_vec().unwrap();
            socket.send_to(&answer, from).await.unwrap();
        }
    };
    (address, AbortOnDropHandle::new(tokio::spawn(serve)))
}

/// Answers whatever comes first on a connection with its name, and then repeats what it gets.
fn serve(internet: &Internet, port: u16, name: &'static str) {
    let listener = internet.listen(port);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer).unwrap_or(0);
                let told = format!("{name} got {length}\n");
                stream.write_all(told.as_bytes()).ok();
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..length]).ok();
                }
            });
        }
    });
}

/// A hello with this name, or none, and one more extension.
fn hello(name: &str, other: u16) -> Vec<u8> {
    let with_length = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length, bytes].concat()
    };
    let mut extensions = [&other.to_be_bytes()[..], &[0, 1, 0]].concat();
    if !name.is_empty() {
        let entry = [&[0][..], &with_length(name.as_bytes())].concat();
        extensions.extend([&[0, 0][..], &with_length(&with_length(&entry))].concat());
    }
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &with_length(&extensions),
    ];
    let body = body.concat();
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1, 0][..], &length, &body].concat();
    [&[22, 3, 1][..], &with_length(&message)].concat()
}

fn request(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

fn open(netns: BorrowedFd<'_>, to: SocketAddr, first: &[u8]) -> std::io::Result<TcpStream> {
    let first = first.to_vec();
    inside(netns, move || {
        let mut stream = TcpStream::connect_timeout(&to, SOON)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(&first)?;
        Ok(stream)
    })
}

/// What comes back first.
async fn ask(netns: BorrowedFd<'_>, to: SocketAddr, first: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let (netns, first) = (netns.try_clone_to_owned().unwrap(), first.to_vec());
    let asking = tokio::task::spawn_blocking(move || {
        let mut stream = open(netns.as_fd(), to, &first).map_err(|error| error.kind())?;
        let mut answer = vec![0; 1024];
        let length = stream.read(&mut answer).map_err(|error| error.kind())?;
        answer.truncate(length);
        Ok(answer)
    });
    asking.await.unwrap()
}

async fn web(netns: BorrowedFd<'_>, host: &str) -> String {
    let answer = ask(netns, (NOWHERE, 80).into(), &request(host)).await;
    String::from_utf8(answer.unwrap()).unwrap()
}

async fn tls(netns: BorrowedFd<'_>, name: &str) -> Vec<u8> {
    let answer = ask(netns, (NOWHERE, 443).into(), &hello(name, 10)).await;
    answer.unwrap()
}

/// Code and number of answers, from the gateway's name server.
async fn look_up(
    netns: BorrowedFd<'_>,
    gateway: Ipv4Addr,
    name: &str,
    kind: RecordType,
) -> (ResponseCode, usize) {
    let mut query = Message::new(7, MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    let (bytes, netns) = (query.to_vec().unwrap(), netns.try_clone_to_owned().unwrap());
    let asking = tokio::task::spawn_blocking(move || {
        inside(netns.as_fd(), move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            socket.connect((gateway, 53)).unwrap();
            socket.send(&bytes).unwrap();
            let mut answer = [0; 512];
            let length = socket.recv(&mut answer).unwrap();
            answer[..length].to_vec()
        })
    });
    let answer = Message::from_vec(&asking.await.unwrap()).unwrap();
    (answer.metadata.response_code, answer.answers.len())
}

fn held(slot: &soulbox_net::Slot) -> OwnedFd {
    slot.netns().try_clone_to_owned().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_names_pass_and_lead_where_the_name_says() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e51", 51);
    let internet = Internet::new([203, 0, 113, 180], "7e51");
    serve(&internet, 80, "web");
    serve(&internet, 443, "tls");
    let hosts = [
        ("one.test", internet.address),
        ("deep.er.below.test", internet.address),
        ("below.test", internet.address),
        ("other.test", internet.address),
        ("inner.test", Ipv4Addr::new(10, 220, 51, 1)),
        ("metadata.test", Ipv4Addr::new(169, 254, 169, 254)),
        ("loop.test", Ipv4Addr::LOCALHOST),
        // The host's own end of the way to the internet.
        ("host.test", Ipv4Addr::new(203, 0, 113, 181)),
    ];
    let named = Named::open(&bed, &hosts).await;
    let network = &named.network;
    let slot = network.acquire().await.unwrap();
    let listed = [
        "one.test",
        "*.below.test",
        "inner.test",
        "metadata.test",
        "loop.test",
        "host.test",
        "gone.test",
    ];
    network.set_policy(&slot, &names(&listed)).await.unwrap();

    // To an address that nobody has, and to that of another host: the name decides.
    assert_eq!(web(slot.netns(), "one.test").await, "web got 34\n");
    assert_eq!(web(slot.netns(), "ONE.test.:80").await, "web got 38\n");
    assert!(
        web(slot.netns(), "deep.er.below.test")
            .await
            .starts_with("web got")
    );
    assert!(tls(slot.netns(), "one.test").await.starts_with(b"tls got"));
    let named = hello("one.test", 10);
    let elsewhere = ask(slot.netns(), (internet.address, 443).into(), &named).await;
    assert!(elsewhere.unwrap().starts_with(b"tls got"));

    // Not listed, not named, or named in a way that hides it.
    for name in ["other.test", "below.test", "xone.test", ""] {
        assert_eq!(tls(slot.netns(), name).await, ACCESS_DENIED, "{name}");
    }
    let hidden = ask(
        slot.netns(),
        (NOWHERE, 443).into(),
        &hello("one.test", 0xfe0d),
    )
    .await;
    assert_eq!(hidden.unwrap(), ACCESS_DENIED);
    let refused = web(slot.netns(), "other.test").await;
    assert!(
        refused.starts_with("HTTP/1.1 403 Forbidden\r\n"),
        "{refused}"
    );
    assert!(
        refused.ends_with("this host is not in the sandbox's allowOut.\n"),
        "{refused}"
    );
    for host in [
        "",
        "203.0.113.180",
        "one.test:8080",
        "one.test\r\nHost: other.test",
    ] {
        assert!(
            web(slot.netns(), host).await.starts_with("HTTP/1.1 4"),
            "{host}"
        );
    }
    let noise = ask(slot.netns(), (NOWHERE, 443).into(), b"\0\0\0\0").await;
    assert_eq!(noise, Err(ErrorKind::ConnectionReset));

    // A name must not lead where no sandbox may go.
    for name in ["inner.test", "metadata.test", "loop.test", "host.test"] {
        let refused = web(slot.netns(), name).await;
        assert!(
            refused.contains("addresses that no sandbox may reach"),
            "{name}: {refused}"
        );
        assert_eq!(tls(slot.netns(), name).await, ACCESS_DENIED, "{name}");
    }
    assert!(
        web(slot.netns(), "gone.test")
            .await
            .starts_with("HTTP/1.1 502")
    );

    let ByNameStats {
        passed, refused, ..
    } = network.by_name();
    assert_eq!((passed, refused), (5, 20));
    drop(slot);
    network.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_beside_the_two_ports_stays_as_the_addresses_say() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e52", 52);
    let internet = Internet::new([203, 0, 113, 184], "7e52");
    serve(&internet, 80, "web");
    serve(&internet, 443, "tls");
    serve(&internet, 8080, "more");
    let named = Named::open(
        &bed,
        &[
            ("one.test", internet.address),
            ("other.test", internet.address),
        ],
    )
    .await;
    let network = &named.network;
    let (slot, neighbour) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    let address = internet.address;
    let to = move |port: u16| SocketAddr::from((address, port));
    network
        .set_policy(&slot, &names(&["one.test"]))
        .await
        .unwrap();
    assert_eq!(
        reach(&slot, to(8080)).await,
        Err(ErrorKind::ConnectionRefused)
    );
    let udp = inside(slot.netns(), move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.connect(to(443)).unwrap();
        socket.send(b"quic").unwrap();
        socket.recv(&mut [0; 10]).map_err(|error| error.kind())
    });
    assert_eq!(
        udp,
        Err(ErrorKind::ConnectionRefused),
        "clients fall back from QUIC at once"
    );
    for closed in [
        slot.gateway(),
        neighbour.address(),
        Ipv4Addr::new(10, 0, 0, 1),
    ] {
        let refused = reach(&slot, (closed, 443)).await;
        assert_eq!(refused, Err(ErrorKind::ConnectionRefused), "{closed}");
    }

    // What is allowed by address needs no name, and others are not sent to the gate at all.
    let by_address = EgressPolicy {
        allow: vec![rule("203.0.113.184/32", Some(443..=443))],
        ..names(&["one.test"])
    };
    network.set_policy(&slot, &by_address).await.unwrap();
    let passed = network.by_name().passed;
    assert!(
        ask(slot.netns(), to(443), b"\0")
            .await
            .unwrap()
            .starts_with(b"tls got 1")
    );
    assert!(
        ask(neighbour.netns(), to(80), b"\0")
            .await
            .unwrap()
            .starts_with(b"web got 1")
    );
    assert_eq!(network.by_name().passed, passed);
    assert!(web(slot.netns(), "one.test").await.starts_with("web got"));

    // Nobody comes to the gate on its own.
    let chain = run("nft", &["list", "chain", "inet", "soulbox_7e52", "to_gate"]).unwrap();
    let ports: Vec<u16> = chain
        .lines()
        .filter_map(|line| line.trim().rsplit_once(':')?.1.parse().ok())
        .collect();
    assert_eq!(ports.len(), 2, "{chain}");
    for port in ports {
        for from in [&slot, &neighbour] {
            let refused = reach(from, (slot.gateway(), port)).await;
            assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
        }
    }
    drop((slot, neighbour));
    network.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_addresses_of_listed_names_can_be_asked_for() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e53", 53);
    let hosts = [
        ("one.test", NOWHERE),
        ("a.below.test", NOWHERE),
        ("other.test", NOWHERE),
    ];
    let named = Named::open(&bed, &hosts).await;
    let network = &named.network;
    let slot = network.acquire().await.unwrap();
    let ask = async |name: &str, kind| look_up(slot.netns(), slot.gateway(), name, kind).await;
    let (found, none) = ((ResponseCode::NoError, 1), (ResponseCode::NoError, 0));
    let refused = (ResponseCode::ServFail, 0);

    assert_eq!(
        ask("other.test.", RecordType::A).await,
        found,
        "without rules"
    );
    network
        .set_policy(&slot, &names(&["one.test", "*.below.test"]))
        .await
        .unwrap();
    for (name, kind, expected) in [
        ("one.test.", RecordType::A, found),
        ("ONE.test.", RecordType::A, found),
        ("one.test.", RecordType::AAAA, none),
        ("one.test.", RecordType::TXT, none),
        ("one.test.", RecordType::HTTPS, none),
        ("a.below.test.", RecordType::A, found),
        ("below.test.", RecordType::A, refused),
        ("other.test.", RecordType::A, refused),
        ("data.other.test.", RecordType::TXT, refused),
        (".", RecordType::NS, refused),
    ] {
        assert_eq!(ask(name, kind).await, expected, "{name} {kind}");
    }
    network
        .set_policy(&slot, &names(&["other.test"]))
        .await
        .unwrap();
    assert_eq!(ask("other.test.", RecordType::A).await, found);
    assert_eq!(ask("one.test.", RecordType::A).await, refused);
    network
        .set_policy(&slot, &EgressPolicy::open())
        .await
        .unwrap();
    assert_eq!(ask("one.test.", RecordType::A).await, found);
    drop(slot);
    network.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_for_new_connections_and_the_end_for_all() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e54", 54);
    let internet = Internet::new([203, 0, 113, 188], "7e54");
    serve(&internet, 80, "web");
    let named = Named::open(
        &bed,
        &[
            ("one.test", internet.address),
            ("two.test", internet.address),
        ],
    )
    .await;
    let network = &named.network;
    let slot = network.acquire().await.unwrap();
    network
        .set_policy(&slot, &names(&["one.test"]))
        .await
        .unwrap();
    assert_eq!(bed.elements("by_domain"), 1);
    let mut stream = open(slot.netns(), (NOWHERE, 80).into(), &request("one.test")).unwrap();
    let talk = tokio::task::spawn_blocking(move || {
        let mut first = [0; 64];
        stream.read(&mut first).map(|_| stream)
    });
    let mut stream = talk.await.unwrap().unwrap();

    network
        .set_policy(&slot, &names(&["two.test"]))
        .await
        .unwrap();
    assert!(
        web(slot.netns(), "one.test")
            .await
            .starts_with("HTTP/1.1 403")
    );
    assert!(web(slot.netns(), "two.test").await.starts_with("web got"));
    let talk = tokio::task::spawn_blocking(move || {
        let mut answer = [0; 5];
        stream.write_all(b"still").unwrap();
        stream.read_exact(&mut answer).unwrap();
        (stream, answer)
    });
    let (stream, answer) = talk.await.unwrap();
    assert_eq!(&answer, b"still");

    // Somebody removes the rules: they come back with the names.
    run("nft", &["delete", "table", "inet", "soulbox_7e54"]).unwrap();
    eventually("the table with its names", || {
        bed.table_exists() && bed.elements("by_domain") == 1
    })
    .await;
    assert!(web(slot.netns(), "two.test").await.starts_with("web got"));

    network
        .set_policy(&slot, &EgressPolicy::closed())
        .await
        .unwrap();
    assert_eq!(bed.elements("by_domain"), 0);
    eventually("the connection ends with the internet", || {
        network.by_name().open == 0
    })
    .await;
    assert_eq!(
        reach(&slot, (NOWHERE, 80)).await,
        Err(ErrorKind::ConnectionRefused)
    );

    network
        .set_policy(&slot, &names(&["one.test"]))
        .await
        .unwrap();
    let kept = open(slot.netns(), (NOWHERE, 80).into(), &request("one.test")).unwrap();
    eventually("a connection", || network.by_name().open == 1).await;
    drop((slot, stream));
    // The socket keeps the namespace, and with it the link.
    drop(kept);
    eventually("nothing is left of it", || {
        network.by_name().open == 0 && bed.elements("by_domain") == 0
    })
    .await;
    network.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_passes_while_nobody_checks_the_names() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e55", 55);
    let internet = Internet::new([203, 0, 113, 192], "7e55");
    serve(&internet, 80, "web");
    let named = Named::open(&bed, &[("one.test", internet.address)]).await;
    let Named {
        network,
        config,
        _server,
    } = named;
    let slot = network.acquire().await.unwrap();
    network
        .set_policy(&slot, &names(&["one.test"]))
        .await
        .unwrap();
    let (index, netns) = (slot.index(), held(&slot));
    assert!(web(netns.as_fd(), "one.test").await.starts_with("web got"));

    // As killed: what it had in the kernel stays.
    drop(network);
    drop(slot);
    let to = SocketAddr::from((internet.address, 80));
    let attempt = async || ask(netns.as_fd(), to, &request("one.test")).await;
    let give_up = tokio::time::Instant::now() + Duration::from_secs(20);
    while attempt().await != Err(ErrorKind::ConnectionRefused) {
        assert!(
            tokio::time::Instant::now() < give_up,
            "somebody still listens"
        );
    }

    // A new server does not know it yet.
    let network = Network::open(config).await.unwrap();
    assert_eq!(attempt().await, Err(ErrorKind::TimedOut));
    let slot = network
        .adopt(index, held_again(&netns), &names(&["one.test"]))
        .await
        .unwrap();
    assert!(web(slot.netns(), "one.test").await.starts_with("web got"));
    assert!(
        web(slot.netns(), "other.test")
            .await
            .starts_with("HTTP/1.1 403")
    );
    drop((slot, netns));
    network.close().await;
    // That of the internet.
    bed.wait_for_links(1).await;
}

fn held_again(netns: &OwnedFd) -> OwnedFd {
    netns.try_clone().unwrap()
}
