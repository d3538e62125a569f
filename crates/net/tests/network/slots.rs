//! Slots come, work and go without a trace.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Instant;

use soulbox_net::{Error, NetConfig, connect_in};

use crate::bed::{Bed, SOON, eventually, inside, skipped};

#[tokio::test]
async fn the_pool_fills_and_everything_goes_when_closed() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e01", 1);
    let network = bed.open().await;
    eventually("a full pool", || network.stats().pool == 2).await;
    assert_eq!(bed.links().len(), 3, "two cables and the gateway");
    assert!(bed.table_exists());

    let slots = [
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    ];
    assert_ne!(slots[0].index(), slots[1].index());
    assert_ne!(slots[0].address(), slots[1].address());
    assert_eq!(slots[0].gateway(), Ipv4Addr::new(10, 220, 1, 1));
    eventually("a refilled pool", || network.stats().pool == 2).await;
    assert_eq!(network.stats().used, 2);

    drop(slots);
    eventually("all but the pool free", || network.stats().free == 30).await;
    bed.wait_for_links(3).await;
    network.close().await;
    assert!(bed.links().is_empty(), "{:?}", bed.links());
    assert!(!bed.table_exists());
    assert!(matches!(network.acquire().await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_dropped_network_frees_its_ready_slots_and_keeps_its_rules() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e02", 2);
    let network = bed.open().await;
    eventually("a full pool", || network.stats().pool == 2).await;
    drop(network);
    bed.wait_for_links(1).await;
    assert!(bed.table_exists(), "a sandbox might still run");
}

#[tokio::test]
async fn more_slots_than_there_are_is_a_typed_error_and_a_returned_one_serves_again() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e03", 3);
    let config = NetConfig {
        max_slots: 3,
        ..bed.config()
    };
    let network = soulbox_net::Network::open(config).await.unwrap();
    let mut slots = Vec::new();
    for _ in 0..3 {
        slots.push(network.acquire().await.unwrap());
    }
    assert!(matches!(
        network.acquire().await,
        Err(Error::NoCapacity { max: 3 })
    ));
    let returned = slots.pop().unwrap().index();
    let again = network.acquire().await.unwrap();
    assert_eq!(again.index(), returned);
    drop((slots, again));
    network.close().await;
}

#[tokio::test]
async fn connect_in_reaches_a_service_on_the_loopback_inside_and_refuses_fast() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e04", 4);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    let listener = inside(slot.netns(), move || TcpListener::bind(address)).unwrap();
    let stream = connect_in(slot.netns(), address, SOON).await.unwrap();
    let (_, from) = listener.accept().unwrap();
    assert_eq!(stream.local_addr().unwrap(), from);

    let closed = SocketAddr::from(([127, 0, 0, 1], 81));
    let refused = connect_in(slot.netns(), closed, SOON).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let over_ipv6: SocketAddr = "[::1]:82".parse().unwrap();
    let other = inside(slot.netns(), move || TcpListener::bind(over_ipv6)).unwrap();
    connect_in(slot.netns(), over_ipv6, SOON).await.unwrap();

    let rounds = 200;
    let start = Instant::now();
    for _ in 0..rounds {
        connect_in(slot.netns(), address, SOON).await.unwrap();
        listener.accept().unwrap();
    }
    eprintln!("connect_in: {:?} each", start.elapsed() / rounds);
    drop((stream, slot, listener, other));
    network.close().await;
    assert!(
        bed.links().is_empty(),
        "a thread of ours must not keep the namespace alive"
    );
}

#[tokio::test]
async fn a_hundred_slots_are_built_quickly() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e05", 5);
    let config = NetConfig {
        max_slots: 120,
        pool: 0,
        ..bed.config()
    };
    let network = soulbox_net::Network::open(config).await.unwrap();
    let memory = kernel_memory();
    let start = Instant::now();
    let mut slots = Vec::new();
    for _ in 0..100 {
        slots.push(network.acquire().await.unwrap());
    }
    let each = start.elapsed() / 100;
    eprintln!(
        "a slot takes {each:?} and {} KiB",
        (kernel_memory() - memory) / 100
    );
    drop(slots);
    network.close().await;
    assert!(bed.links().is_empty());
}

/// Slab and per-processor memory in KiB. Others on the machine move it too: a figure to look at.
fn kernel_memory() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<i64>().ok();
    text.lines()
        .filter(|line| {
            ["Slab:", "Percpu:", "KernelStack:"]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .filter_map(kib)
        .sum()
}

#[tokio::test]
async fn the_settings_inside_let_users_ping_and_bind_low_ports() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e06", 6);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let read = |path: &'static str| {
        inside(slot.netns(), move || {
            std::fs::read_to_string(path).unwrap().trim().to_owned()
        })
    };
    assert_eq!(read("/proc/sys/net/ipv4/ping_group_range"), "0\t2147483647");
    assert_eq!(read("/proc/sys/net/ipv4/ip_unprivileged_port_start"), "0");
    assert_eq!(read("/proc/sys/net/ipv6/conf/eth0/disable_ipv6"), "1");
    assert_eq!(read("/proc/sys/net/ipv6/conf/lo/disable_ipv6"), "0");
    let host = format!(
        "/proc/sys/net/ipv6/conf/{}/disable_ipv6",
        slot.host_interface()
    );
    assert_eq!(std::fs::read_to_string(host).unwrap().trim(), "1");
    drop(slot);
    network.close().await;
}

#[tokio::test]
async fn a_range_that_another_link_uses_is_refused() {
    if skipped() {
        return;
    }
    let (first, second) = (Bed::new("7e07", 7), Bed::new("7e08", 7));
    let network = first.open().await;
    let refused = soulbox_net::Network::open(second.config())
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::RangeInUse { .. }), "{refused}");
    assert!(second.links().is_empty());
    network.close().await;
}

#[tokio::test]
async fn of_servers_that_start_together_one_gets_the_range() {
    if skipped() {
        return;
    }
    let beds = ["7e51", "7e52", "7e53", "7e54"].map(|tag| Bed::new(tag, 51));
    let openings = beds
        .iter()
        .map(|bed| tokio::spawn(soulbox_net::Network::open(bed.config())));
    let openings: Vec<_> = openings.collect();
    let mut winners = Vec::new();
    for opening in openings {
        match opening.await.unwrap() {
            Ok(network) => winners.push(network),
            Err(refused) => assert!(matches!(refused, Error::RangeInUse { .. }), "{refused}"),
        }
    }
    assert_eq!(winners.len(), 1);
    for network in winners {
        network.close().await;
    }
}

#[tokio::test]
async fn hundreds_of_slots_taken_and_given_up_at_any_moment_leave_nothing() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e09", 9);
    let network = bed.open().await;
    eventually("a full pool", || network.stats().pool == 2).await;
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for round in 0..40 {
        let work = (0..8).map(|n| {
            // From "before it begins" to "after it is done".
            let patience = std::time::Duration::from_micros(250 * ((round + n) % 40));
            tokio::time::timeout(patience, network.acquire())
        });
        futures_util::future::join_all(work).await;
    }
    eventually("all but the pool free", || network.stats().free == 30).await;
    bed.wait_for_links(3).await;
    // Other tests of this process open and close descriptors at the same time.
    eventually("no descriptor more", || descriptors() <= before + 200).await;
    network.close().await;
    assert!(bed.links().is_empty());
}
