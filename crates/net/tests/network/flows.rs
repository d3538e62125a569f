//! Entries in the kernel's table of connections, which the whole machine shares.

use std::net::Ipv4Addr;

use soulbox_net::connect_in;

use crate::bed::{Bed, Internet, SOON, eventually, skipped};

const TABLE: &str = "/proc/net/nf_conntrack";

/// How many connections the table has that this address began.
fn flows_of(address: Ipv4Addr) -> usize {
    let table = std::fs::read_to_string(TABLE).unwrap();
    let first = format!("src={address} ");
    // The first source of a line is the sender of the first packet.
    let begun = |line: &&str| {
        line.find("src=")
            .is_some_and(|at| line[at..].starts_with(&first))
    };
    table.lines().filter(begun).count()
}

#[tokio::test]
async fn connections_end_with_the_slot_that_began_them() {
    if skipped() {
        return;
    }
    if !std::fs::exists(TABLE).unwrap() {
        eprintln!("skipped: this kernel does not list its connections in {TABLE}");
        return;
    }
    let bed = Bed::new("7e47", 47);
    let internet = Internet::new([203, 0, 113, 140], "7e47");
    let listener = internet.listen(80);
    let network = bed.open().await;
    let (gone, stays) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    let to = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    for slot in [&gone, &gone, &gone, &stays] {
        streams.push(connect_in(slot.netns(), to, SOON).await.unwrap());
    }
    let (address, neighbour) = (gone.address(), stays.address());
    assert_eq!((flows_of(address), flows_of(neighbour)), (3, 1));

    // As when its processes are killed: nobody says goodbye, or the namespace is gone before.
    let (index, kept) = (gone.index(), streams.pop());
    drop((streams, gone));
    eventually("its number is free", || network.is_free(index)).await;
    assert_eq!(flows_of(address), 0, "they outlived their sandbox");
    assert_eq!(flows_of(neighbour), 1, "a neighbour lost its own");
    drop((kept, stays));
    network.close().await;
    assert_eq!(flows_of(neighbour), 0, "they outlived the network");
}
