//! Names are resolved through the gateway, by the servers that the host uses.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use soulbox_net::{EgressPolicy, Ipv4Net, NetConfig, Network, connect_in};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::{Bed, SOON, eventually, inside, run, skipped};

/// A question for `x.test`, type A.
const QUESTION: &[u8] =
    b"\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x04test\x00\x00\x01\x00\x01";

const LONG: Duration = Duration::from_secs(10);

/// A server on loopback that answers every question with itself, marked as an answer.
pub(crate) async fn fake_upstream() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let (udp, tcp) = loop {
        let udp = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // Another program may have the port for TCP.
        if let Ok(tcp) = tokio::net::TcpListener::bind(udp.local_addr().unwrap()).await {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    let serve = async move {
        let mut buffer = [0; 512];
        loop {
            tokio::select! {
                Ok((length, from)) = udp.recv_from(&mut buffer) => {
                    buffer[2] |= 0x80;
                    udp.send_to(&buffer[..length], from).await.unwrap();
                }
                Ok((mut stream, _)) = tcp.accept() => {
                    let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
                    stream.read_exact(&mut question).await.unwrap();
                    question[2] |= 0x80;
                    stream.write_u16(u16::try_from(question.len()).unwrap()).await.unwrap();
                    stream.write_all(&question).await.unwrap();
                }
            }
        }
    };
    (address, tokio::spawn(serve))
}

pub(crate) fn expected() -> Vec<u8> {
    let mut answer = QUESTION.to_vec();
    answer[2] |= 0x80;
    answer
}

/// Asks over UDP from inside, as a program there would.
async fn ask(netns: BorrowedFd<'_>, server: SocketAddr) -> std::io::Result<Vec<u8>> {
    ask_for(netns, server, QUESTION.to_vec(), LONG).await
}

/// The same, for answers that may not come.
pub(crate) async fn ask_within(
    netns: BorrowedFd<'_>,
    server: SocketAddr,
    time: Duration,
) -> std::io::Result<Vec<u8>> {
    ask_for(netns, server, QUESTION.to_vec(), time).await
}

async fn ask_for(
    netns: BorrowedFd<'_>,
    server: SocketAddr,
    message: Vec<u8>,
    time: Duration,
) -> std::io::Result<Vec<u8>> {
    let netns = netns.try_clone_to_owned().unwrap();
    let question = move || {
        inside(netns.as_fd(), move || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(time))?;
            socket.connect(server)?;
            socket.send(&message)?;
            let mut answer = vec![0; 512];
            let length = socket.recv(&mut answer)?;
            answer.truncate(length);
            Ok(answer)
        })
    };
    tokio::task::spawn_blocking(question).await.unwrap()
}

#[tokio::test]
async fn questions_reach_the_upstream_and_answers_come_back_by_udp_and_tcp() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e21", 21);
    let (upstream, server) = fake_upstream().await;
    let config = NetConfig {
        upstream_dns: vec![upstream],
        ..bed.config()
    };
    let network = Network::open(config).await.unwrap();
    let slot = network.acquire().await.unwrap();
    let gateway = SocketAddr::from((slot.gateway(), 53));

    assert_eq!(ask(slot.netns(), gateway).await.unwrap(), expected());

    let mut stream = connect_in(slot.netns(), gateway, SOON).await.unwrap();
    for _ in 0..2 {
        stream
            .write_u16(u16::try_from(QUESTION.len()).unwrap())
            .await
            .unwrap();
        stream.write_all(QUESTION).await.unwrap();
        let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, expected());
    }
    server.abort();
    drop((slot, stream));
    network.close().await;
}

#[tokio::test]
async fn a_dead_upstream_is_passed_over_and_none_at_all_is_a_failure_not_silence() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e22", 22);
    let (upstream, server) = fake_upstream().await;
    // Closed ports on loopback: refused at once.
    let dead = SocketAddr::from(([127, 0, 0, 1], 1));
    let config = NetConfig {
        upstream_dns: vec![dead, upstream],
        ..bed.config()
    };
    let network = Network::open(config).await.unwrap();
    let slot = network.acquire().await.unwrap();
    let gateway = SocketAddr::from((slot.gateway(), 53));
    assert_eq!(ask(slot.netns(), gateway).await.unwrap(), expected());
    server.abort();
    assert!(server.await.is_err());
    let answer = ask(slot.netns(), gateway).await.unwrap();
    assert_eq!(answer[..2], QUESTION[..2]);
    assert_eq!(answer[3] & 0x0f, 2, "server failure");
    drop(slot);
    network.close().await;
}

/// Also those that ask from where they asked when they were allowed to, and the other way round.
#[tokio::test]
async fn who_may_not_ask_is_told_so_at_once_and_nobody_else_hears_the_question() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e2f", 48);
    let (upstream, server) = fake_upstream().await;
    let config = NetConfig {
        upstream_dns: vec![upstream],
        ..bed.config()
    };
    let network = Network::open(config).await.unwrap();
    let slot = network.acquire().await.unwrap();
    let gateway = SocketAddr::from((slot.gateway(), 53));
    let everything = "0.0.0.0/0".parse::<Ipv4Net>().unwrap();
    let somewhere = "203.0.113.9/32".parse::<Ipv4Net>().unwrap();
    let ruled = EgressPolicy {
        allow: vec![somewhere.into()],
        allow_names: Vec::new(),
        deny: vec![everything.into()],
        ..EgressPolicy::open()
    };
    for denied in [EgressPolicy::closed(), ruled] {
        network.set_policy(&slot, &denied).await.unwrap();
        let asked = network.names().asked;
        for _ in 0..3 {
            let started = Instant::now();
            let answer = ask(slot.netns(), gateway).await.unwrap();
            // A client that gets no answer waits for five.
            assert!(started.elapsed() < Duration::from_secs(4));
            assert_eq!(answer[..2], QUESTION[..2]);
            assert_eq!(answer[3] & 0x0f, 2, "server failure");
        }
        assert_eq!(network.names().asked, asked, "nothing was passed on");
        network
            .set_policy(&slot, &EgressPolicy::open())
            .await
            .unwrap();
        assert_eq!(ask(slot.netns(), gateway).await.unwrap(), expected());
    }
    server.abort();
    drop(slot);
    network.close().await;
}

#[tokio::test]
async fn who_is_not_a_sandbox_gets_no_answer() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e23", 23);
    let (upstream, server) = fake_upstream().await;
    let config = NetConfig {
        upstream_dns: vec![upstream],
        ..bed.config()
    };
    let network = Network::open(config).await.unwrap();
    let gateway = SocketAddr::from(([10, 220, 23, 1], 53));
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    // The kernel would choose the gateway's own address as the source; loopback is a stranger.
    if socket.send_to(QUESTION, gateway).await.is_ok() {
        let mut answer = [0; 512];
        let heard =
            tokio::time::timeout(Duration::from_millis(200), socket.recv(&mut answer)).await;
        assert!(heard.is_err(), "a stranger was answered");
    }
    server.abort();
    network.close().await;
}

/// A name that this machine surely knows: that of its own package source.
fn package_host() -> Option<String> {
    let folder = std::fs::read_dir("/etc/apt/sources.list.d").ok()?;
    let files = folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "list" || e == "sources")
        });
    let files = files.chain([std::path::PathBuf::from("/etc/apt/sources.list")]);
    let mut texts = files.filter_map(|path| std::fs::read_to_string(path).ok());
    texts.find_map(|text| {
        let mut lines = text.lines();
        let line = lines.find(|l| l.starts_with("URIs:") || l.starts_with("deb "))?;
        let (_, rest) = line.split_once("://")?;
        let host: String = rest.chars().take_while(|c| !"/: \n".contains(*c)).collect();
        (!host.is_empty()).then_some(host)
    })
}

#[tokio::test]
async fn by_default_names_are_resolved_as_on_the_host() {
    if skipped() {
        return;
    }
    let Some(name) = package_host() else {
        eprintln!("skipped: this host names no package source to ask for");
        return;
    };
    let Some(on_host) = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 80))
        .ok()
        .and_then(|mut found| found.find(SocketAddr::is_ipv4))
    else {
        eprintln!("skipped: this host resolves no names");
        return;
    };
    let bed = Bed::new("7e24", 24);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let mut question = QUESTION[..12].to_vec();
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend(b"\x00\x00\x01\x00\x01");
    let gateway = SocketAddr::from((slot.gateway(), 53));
    let answer = ask_for(slot.netns(), gateway, question, LONG)
        .await
        .unwrap();
    assert_eq!(answer[3] & 0x0f, 0, "no error");
    assert!(
        u16::from_be_bytes([answer[6], answer[7]]) > 0,
        "an answer like {on_host}"
    );
    drop(slot);
    network.close().await;
}

#[tokio::test]
async fn a_name_server_of_the_host_on_our_port_is_no_obstacle() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e25", 25);
    run("ip", &["link", "add", "sbx7e25", "type", "bridge"]).unwrap();
    run("ip", &["addr", "add", "10.220.25.1/32", "dev", "sbx7e25"]).unwrap();
    let _theirs = UdpSocket::bind("10.220.25.1:53").unwrap();
    let (upstream, server) = fake_upstream().await;
    let config = NetConfig {
        upstream_dns: vec![upstream],
        ..bed.config()
    };
    let network = Network::open(config).await.unwrap();
    let slot = network.acquire().await.unwrap();
    let gateway = SocketAddr::from((slot.gateway(), 53));
    assert_eq!(ask(slot.netns(), gateway).await.unwrap(), expected());
    connect_in(slot.netns(), gateway, SOON).await.unwrap();
    server.abort();
    drop(slot);
    network.close().await;
}

/// As resolvers do: who hears nothing asks again.
async fn ask_patiently(netns: BorrowedFd<'_>, server: SocketAddr) -> Option<Vec<u8>> {
    for _ in 0..5 {
        if let Ok(answer) = ask_within(netns, server, Duration::from_secs(1)).await {
            return Some(answer);
        }
    }
    None
}

/// What a flood makes this server and the host's resolver do depends on time, not on the flood.
#[tokio::test]
async fn a_sandbox_that_floods_with_questions_is_slowed_and_its_neighbour_is_answered() {
    // As in the forwarder.
    const AT_ONCE: u32 = 2000;
    const PER_SECOND: u32 = 1000;
    if skipped() {
        return;
    }
    let bed = Bed::new("7e26", 26);
    let (upstream, server) = fake_upstream().await;
    let config = NetConfig {
        upstream_dns: vec![upstream],
        ..bed.config()
    };
    let network = Network::open(config).await.unwrap();
    let hog = network.acquire().await.unwrap();
    let neighbour = network.acquire().await.unwrap();
    let gateway = SocketAddr::from((hog.gateway(), 53));
    let before = network.names();
    let started = Instant::now();

    let (netns, enough) = (hog.netns().try_clone_to_owned().unwrap(), Arc::default());
    let stop: Arc<AtomicBool> = Arc::clone(&enough);
    let flood = tokio::task::spawn_blocking(move || {
        inside(netns.as_fd(), move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(gateway).unwrap();
            let mut sent = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                sent += u32::from(socket.send(QUESTION).is_ok());
            }
            sent
        })
    });
    let mut answered = Vec::new();
    for _ in 0..20 {
        answered.push(ask_patiently(neighbour.netns(), gateway).await);
    }
    enough.store(true, Ordering::Relaxed);
    let sent = flood.await.unwrap();
    let seconds = started.elapsed().as_secs_f64();
    let after = network.names();
    server.abort();
    drop((hog, neighbour));
    eventually("the kernel forgets who asked", || {
        bed.elements("asking") == 0
    })
    .await;
    network.close().await;

    for answer in answered {
        assert_eq!(answer.as_deref(), Some(expected().as_slice()));
    }
    let asked = u32::try_from(after.asked - before.asked).unwrap();
    // Those that wait for their turn are counted too.
    let most = f64::from(AT_ONCE + 200) + f64::from(PER_SECOND) * seconds;
    assert!(
        f64::from(asked) <= most,
        "{asked} of {sent} in {seconds} s, {after:?}"
    );
}
