//! What a sandbox can reach, and what it cannot.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use soulbox_net::{EgressPolicy, NetConfig, Network};

use crate::bed::{Bed, Internet, eventually, inside, reach, run, skipped};

#[tokio::test]
async fn the_host_its_neighbours_and_private_addresses_are_refused_at_once() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e11", 11);
    let network = bed.open().await;
    let (one, other) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );

    let neighbour = SocketAddr::from((other.address(), 8080));
    let service = inside(other.netns(), move || TcpListener::bind(neighbour)).unwrap();
    assert_eq!(reach(&other, neighbour).await, Ok(()), "it does listen");
    assert_eq!(
        reach(&one, neighbour).await,
        Err(ErrorKind::ConnectionRefused)
    );

    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    for host in [one.gateway(), host_address()] {
        assert_eq!(
            reach(&one, (host, port)).await,
            Err(ErrorKind::ConnectionRefused),
            "{host}"
        );
    }
    // Its own loopback, on which nobody listens: the host's is another.
    assert_eq!(
        reach(&one, (Ipv4Addr::LOCALHOST, port)).await,
        Err(ErrorKind::ConnectionRefused)
    );
    for private in [
        [169, 254, 169, 254],
        [10, 1, 2, 3],
        [172, 16, 0, 1],
        [192, 168, 0, 1],
        [100, 64, 0, 1],
        [10, 220, 11, 77],
    ] {
        assert_eq!(
            reach(&one, (Ipv4Addr::from(private), 80)).await,
            Err(ErrorKind::ConnectionRefused),
            "{private:?}"
        );
    }
    drop((one, other, service));
    network.close().await;
    assert!(bed.links().is_empty());
}

#[tokio::test]
async fn the_internet_is_reached_only_while_it_is_allowed() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e12", 12);
    let internet = Internet::new([203, 0, 113, 200], "7e12");
    let service = internet.listen(443);
    let target = SocketAddr::from((internet.address, 443));
    let network = bed.open().await;
    let (open, closed) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    let (opened, shut) = (EgressPolicy::open(), EgressPolicy::closed());
    network.set_policy(&closed, &shut).await.unwrap();

    assert_eq!(reach(&open, target).await, Ok(()));
    assert_eq!(
        service.accept().unwrap().1.ip(),
        Ipv4Addr::new(203, 0, 113, 201),
        "masked"
    );
    assert_eq!(
        reach(&closed, target).await,
        Err(ErrorKind::ConnectionRefused)
    );
    let names = SocketAddr::from((closed.gateway(), 53));
    assert_eq!(
        reach(&closed, names).await,
        Err(ErrorKind::ConnectionRefused),
        "no names either"
    );
    assert_eq!(reach(&open, names).await, Ok(()));

    network.set_policy(&closed, &opened).await.unwrap();
    assert_eq!(reach(&closed, target).await, Ok(()));
    network.set_policy(&open, &shut).await.unwrap();
    assert_eq!(
        reach(&open, target).await,
        Err(ErrorKind::ConnectionRefused)
    );
    drop((open, closed));
    network.close().await;
}

#[tokio::test]
async fn an_opened_private_range_is_reached_and_its_neighbours_are_not() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e13", 13);
    let office = Internet::new([10, 221, 13, 10], "7e13");
    let _service = office.listen(80);
    let target = SocketAddr::from((office.address, 80));

    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    assert_eq!(
        reach(&slot, target).await,
        Err(ErrorKind::ConnectionRefused)
    );
    drop(slot);
    network.close().await;

    let open_ranges = vec![
        "10.221.13.10/32".parse().unwrap(),
        "10.220.0.0/16".parse().unwrap(),
    ];
    let network = Network::open(NetConfig {
        open_ranges,
        ..bed.config()
    })
    .await
    .unwrap();
    let (slot, other) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    assert_eq!(reach(&slot, target).await, Ok(()));
    assert_eq!(
        reach(&slot, (Ipv4Addr::new(10, 221, 13, 11), 80)).await,
        Err(ErrorKind::ConnectionRefused)
    );
    let neighbour = SocketAddr::from((other.address(), 8080));
    let service = inside(other.netns(), move || TcpListener::bind(neighbour)).unwrap();
    assert_eq!(
        reach(&slot, neighbour).await,
        Err(ErrorKind::ConnectionRefused),
        "opening a range never opens other sandboxes"
    );
    drop((slot, other, service));
    network.close().await;
}

#[tokio::test]
async fn nobody_outside_gets_into_a_sandbox() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e14", 14);
    let internet = Internet::new([203, 0, 113, 210], "7e14");
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let address = SocketAddr::from((slot.address(), 8080));
    let service = inside(slot.netns(), move || TcpListener::bind(address)).unwrap();
    let near = Ipv4Addr::from(u32::from(internet.address) + 1).to_string();
    run(
        "ip",
        &["-n", "sbtest-7e14", "route", "add", "default", "via", &near],
    )
    .unwrap();

    let short = Duration::from_millis(300);
    let from_outside = inside(std::os::fd::AsFd::as_fd(&internet.netns()), move || {
        std::net::TcpStream::connect_timeout(&address, short).map(drop)
    });
    assert_eq!(from_outside.unwrap_err().kind(), ErrorKind::TimedOut);
    let from_host = std::net::TcpStream::connect_timeout(&address, short);
    assert!(from_host.is_err(), "the host uses connect_in");
    service.set_nonblocking(true).unwrap();
    assert_eq!(service.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop((slot, service));
    network.close().await;
}

#[tokio::test]
async fn a_forged_source_address_goes_nowhere() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e15", 15);
    let internet = Internet::new([203, 0, 113, 220], "7e15");
    let target = SocketAddr::from((internet.address, 9));
    let receiver = inside(std::os::fd::AsFd::as_fd(&internet.netns()), move || {
        UdpSocket::bind(target)
    })
    .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let network = bed.open().await;
    let (liar, victim) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );

    // A sandbox cannot add an address; we lie for it, as somebody with a hole to use would.
    let lies = [
        victim.address(),
        Ipv4Addr::new(203, 0, 113, 77),
        Ipv4Addr::new(10, 220, 15, 99),
    ];
    for lie in lies {
        let send = move || {
            run("ip", &["addr", "add", &format!("{lie}/32"), "dev", "lo"]).unwrap();
            UdpSocket::bind((lie, 0)).unwrap().send_to(b"lie", target)
        };
        inside(liar.netns(), send).unwrap();
    }
    let mut buffer = [0; 16];
    assert!(receiver.recv_from(&mut buffer).is_err(), "a lie arrived");
    let honest = move || {
        UdpSocket::bind("0.0.0.0:0")
            .unwrap()
            .send_to(b"truth", target)
    };
    inside(liar.netns(), honest).unwrap();
    assert_eq!(receiver.recv_from(&mut buffer).unwrap().0, 5);
    drop((liar, victim));
    network.close().await;
}

#[tokio::test]
async fn a_sandbox_with_too_many_connections_is_stopped_and_its_neighbour_is_not() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e17", 17);
    let internet = Internet::new([203, 0, 113, 190], "7e17");
    let service = internet.listen(443);
    let target = SocketAddr::from((internet.address, 443));
    let network = bed.open().await;
    let (greedy, other) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    assert_eq!(reach(&greedy, target).await, Ok(()));
    let open_many = move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for port in 1..=4200 {
            // Refusals that came back for earlier ones are reported here.
            socket.send_to(b"x", (target.ip(), port)).ok();
        }
    };
    inside(greedy.netns(), open_many);
    assert_eq!(
        reach(&greedy, target).await,
        Err(ErrorKind::ConnectionRefused)
    );
    assert_eq!(reach(&other, target).await, Ok(()));
    drop((greedy, other, service));
    network.close().await;
}

#[tokio::test]
async fn rules_that_somebody_removes_come_back() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e16", 16);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    for _ in 0..3 {
        run("nft", &["delete", "table", "inet", "soulbox_7e16"]).unwrap();
        eventually("rules again", || bed.table_exists()).await;
        let gateway = (slot.gateway(), port);
        assert_eq!(
            reach(&slot, gateway).await,
            Err(ErrorKind::ConnectionRefused)
        );
    }
    drop(slot);
    network.close().await;
    assert!(!bed.table_exists(), "not after closing");
}

/// An address of this host that is not ours: its own on the way to the internet.
fn host_address() -> Ipv4Addr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // No packet is sent: connecting a UDP socket only chooses the address.
    match socket
        .connect("203.0.113.1:9")
        .and_then(|()| socket.local_addr())
        .map(|a| a.ip())
    {
        Ok(std::net::IpAddr::V4(address)) => address,
        _ => Ipv4Addr::LOCALHOST,
    }
}
