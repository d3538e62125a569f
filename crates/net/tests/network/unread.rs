//! What waits in a slot's sockets is counted, and only there, unless they are the server's own.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Uid, fchown};
use rustix::net::{
    AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, bind, ipproto, netlink, send,
    sendto, socket_with, sockopt,
};
use soulbox_net::{Slot, connect_in, socket_memory_in};

use crate::bed::{Bed, SOON, inside, skipped};

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn what_waits_unread_is_counted_in_its_own_namespace() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e66", 66);
    let network = bed.open().await;
    let [slot, other] = [
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    ];
    let waits = async || bytes_in(&slot).await;
    assert!(waits().await < MIB / 4);

    for (what, hoard) in [
        (
            "answers of netlink",
            netlink_answers as fn() -> Vec<OwnedFd>,
        ),
        ("replies to a ping", ping_replies),
        ("datagrams", datagrams),
        ("connections that nobody accepts", connections),
    ] {
        let held = inside(slot.netns(), hoard);
        let bytes = waits().await;
        assert!((MIB..64 * MIB).contains(&bytes), "{what}: {bytes}");
        assert!(bytes_in(&other).await < MIB / 4, "{what}");
        drop(held);
        let gone = async || waits().await < MIB / 4;
        let give_up = tokio::time::Instant::now() + crate::bed::LIMIT;
        while !gone().await {
            assert!(tokio::time::Instant::now() < give_up, "{what} still wait");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    drop((slot, other));
    network.close().await;
}

/// The proxy's: it fills as long as a program inside does not read.
#[tokio::test]
async fn what_the_server_could_not_send_is_not_the_sandboxs() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e67", 67);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let listener = inside(slot.netns(), || {
        // A small window, inherited by what is accepted: the rest stays with who sends.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&listener, 8 << 10).unwrap();
        sandboxes(listener)
    });
    let address = listener.local_addr().unwrap();
    let data = vec![0; 64 << 10];
    let mut streams = Vec::new();
    let mut unsent = 0;
    while unsent < 4 * MIB {
        let stream = connect_in(slot.netns(), address, SOON).await.unwrap();
        sockopt::set_socket_send_buffer_size(&stream, 1 << 20).unwrap();
        while let Ok(length) = stream.try_write(&data) {
            unsent += length as u64;
        }
        streams.push(stream);
    }
    let bytes = bytes_in(&slot).await;
    assert!(bytes < MIB, "{bytes}");
    // The same, of a program inside.
    for stream in &streams {
        sandboxes(stream);
    }
    let bytes = bytes_in(&slot).await;
    assert!(bytes > 3 * MIB, "{bytes}");
    let told = socket_memory_in(slot.netns()).await.unwrap();
    assert!(
        (streams.len() as u64..1000).contains(&told.sockets),
        "{told:?}"
    );
    drop((streams, listener, slot));
    network.close().await;
}

/// Of a sandbox's private range.
const PROGRAM: u32 = 200_000;

/// As a program in a sandbox would have made it: this test runs as the server's user.
fn sandboxes<T: AsFd>(socket: T) -> T {
    fchown(&socket, Some(Uid::from_raw(PROGRAM)), None).unwrap();
    socket
}

async fn bytes_in(slot: &Slot) -> u64 {
    let told = socket_memory_in(slot.netns()).await.unwrap();
    assert!(told.complete);
    told.bytes
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, protocol).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
    sandboxes(socket)
}

/// The kernel sends back what it does not understand.
fn netlink_answers() -> Vec<OwnedFd> {
    const LENGTH: u32 = 64 << 10;
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None);
    bind(&socket, &netlink::SocketAddrNetlink::new(0, 0)).unwrap();
    let mut request = vec![0; LENGTH as usize];
    request[..4].copy_from_slice(&LENGTH.to_ne_bytes());
    // No kind of message; a request that wants an answer.
    request[4..6].copy_from_slice(&999_u16.to_ne_bytes());
    request[6..8].copy_from_slice(&5_u16.to_ne_bytes());
    for _ in 0..32 {
        send(&socket, &request, SendFlags::empty()).ok();
    }
    vec![socket]
}

fn ping_replies() -> Vec<OwnedFd> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP));
    let mut echo = vec![0; 8 << 10];
    echo[0] = 8;
    let to = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0);
    for _ in 0..400 {
        sendto(&socket, &echo, SendFlags::empty(), &to).ok();
    }
    vec![socket]
}

fn datagrams() -> Vec<OwnedFd> {
    let socket = sandboxes(UdpSocket::bind("127.0.0.1:0").unwrap());
    sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
    let to = socket.local_addr().unwrap();
    for _ in 0..400 {
        socket.send_to(&[0; 8 << 10], to).ok();
    }
    vec![socket.into()]
}

fn connections() -> Vec<OwnedFd> {
    let listener = sandboxes(TcpListener::bind("127.0.0.1:0").unwrap());
    let data = vec![0; 64 << 10];
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = sandboxes(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        stream.set_nonblocking(true).unwrap();
        while stream.write(&data).is_ok() {}
        held.push(stream.into());
    }
    held.push(listener.into());
    held
}
