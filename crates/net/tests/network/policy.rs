//! Rules of one sandbox: allow over deny, ports, changes at run time, and nothing left behind.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use soulbox_net::{EgressPolicy, EgressRule, Error, Slot};

use crate::bed::{Bed, Internet, SOON, eventually, inside, reach, rule, run, skipped};

const REFUSED: Result<(), ErrorKind> = Err(ErrorKind::ConnectionRefused);

fn policy(internet: bool, allow: Vec<EgressRule>, deny: Vec<EgressRule>) -> EgressPolicy {
    EgressPolicy {
        internet,
        allow,
        allow_names: Vec::new(),
        deny,
    }
}

/// How many elements each of the table's sets for rules has.
fn elements(bed: &Bed) -> BTreeMap<&'static str, usize> {
    let sets = [
        "ruled",
        "named",
        "by_domain",
        "allow_hosts",
        "allow_ports",
        "deny_hosts",
        "deny_ports",
    ];
    sets.map(|set| (set, bed.elements(set))).into()
}

fn nothing(bed: &Bed) -> bool {
    elements(bed).values().all(|count| *count == 0)
}

#[tokio::test]
async fn allowed_wins_over_denied_and_ports_are_told_apart() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e41", 41);
    let internet = Internet::new([203, 0, 113, 150], "7e41");
    let _services = [80, 443, 8080].map(|port| internet.listen(port));
    let (address, one) = (internet.address, "203.0.113.150/32");
    let everything = || rule("0.0.0.0/0", None);
    let network = bed.open().await;
    let (slot, neighbour) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    let outcomes = async |slot: &Slot| {
        let mut outcomes = Vec::new();
        for port in [80, 443, 8080] {
            outcomes.push(reach(slot, (address, port)).await.is_ok());
        }
        outcomes
    };
    let all = || vec![rule(one, None)];
    let some = || vec![rule(one, Some(400..=500)), rule(one, Some(443..=8080))];
    for (policy, expected) in [
        (policy(true, vec![], all()), [false, false, false]),
        (
            policy(true, vec![], vec![rule("203.0.113.151/32", None)]),
            [true, true, true],
        ),
        (policy(true, all(), vec![everything()]), [true, true, true]),
        (policy(false, all(), vec![]), [true, true, true]),
        (policy(true, vec![], some()), [true, false, false]),
        (
            policy(true, some(), vec![everything()]),
            [false, true, true],
        ),
        (policy(true, some(), all()), [false, true, true]),
        (
            policy(
                true,
                vec![rule(one, Some(80..=80))],
                vec![rule("203.0.0.0/16", Some(1..=443))],
            ),
            [true, false, true],
        ),
        (
            policy(
                true,
                vec![rule("203.0.113.0/24", None), rule(one, None)],
                vec![everything(), everything()],
            ),
            [true, true, true],
        ),
        (EgressPolicy::open(), [true, true, true]),
        (EgressPolicy::closed(), [false, false, false]),
    ] {
        network.set_policy(&slot, &policy).await.unwrap();
        assert_eq!(outcomes(&slot).await, expected, "{policy:?}");
        assert_eq!(outcomes(&neighbour).await, [true; 3], "only its own");
    }
    assert!(nothing(&bed), "{:?}", elements(&bed));
    drop((slot, neighbour));
    network.close().await;
}

#[tokio::test]
async fn nobody_can_allow_himself_what_is_closed_for_all() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e42", 42);
    let office = Internet::new([10, 221, 42, 10], "7e42");
    let _service = office.listen(80);
    let network = bed.open().await;
    let (slot, neighbour) = (
        network.acquire().await.unwrap(),
        network.acquire().await.unwrap(),
    );
    let everything = vec![rule("0.0.0.0/0", None)];
    let ambitious = policy(false, everything, vec![]);
    network.set_policy(&slot, &ambitious).await.unwrap();
    for closed in [
        office.address,
        neighbour.address(),
        slot.gateway(),
        Ipv4Addr::new(169, 254, 169, 254),
    ] {
        assert_eq!(reach(&slot, (closed, 80)).await, REFUSED, "{closed}");
    }
    drop((slot, neighbour));
    network.close().await;
}

#[tokio::test]
async fn names_are_answered_unless_everything_is_denied() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e43", 43);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let names = SocketAddr::from((slot.gateway(), 53));
    let one = || vec![rule("9.9.9.9/32", None)];
    let partly = policy(true, vec![], one());
    network.set_policy(&slot, &partly).await.unwrap();
    assert_eq!(reach(&slot, names).await, Ok(()));
    let hardly = policy(true, one(), vec![rule("0.0.0.0/0", None)]);
    network.set_policy(&slot, &hardly).await.unwrap();
    assert_eq!(reach(&slot, names).await, REFUSED);
    drop(slot);
    network.close().await;
}

#[tokio::test]
async fn a_new_rule_leaves_open_connections_alone() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e44", 44);
    let internet = Internet::new([203, 0, 113, 160], "7e44");
    let service = internet.listen(443);
    let target = SocketAddr::from((internet.address, 443));
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let mut open = inside(slot.netns(), move || {
        TcpStream::connect_timeout(&target, SOON)
    })
    .unwrap();
    let mut other_end = service.accept().unwrap().0;
    let deny = policy(true, vec![], vec![rule("0.0.0.0/0", None)]);
    network.set_policy(&slot, &deny).await.unwrap();
    assert_eq!(reach(&slot, target).await, REFUSED);
    let mut answer = [0; 4];
    other_end.set_read_timeout(Some(SOON)).unwrap();
    open.write_all(b"ping").unwrap();
    other_end.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
    drop((slot, open));
    network.close().await;
}

#[tokio::test]
async fn elements_go_with_the_slot_and_come_back_with_the_table() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e45", 45);
    let internet = Internet::new([203, 0, 113, 170], "7e45");
    let _service = internet.listen(443);
    let target = SocketAddr::from((internet.address, 443));
    let network = bed.open().await;
    let mut slots = Vec::new();
    for _ in 0..8 {
        let slot = network.acquire().await.unwrap();
        let allow = (0..40)
            .map(|n| rule(&format!("20.{n}.0.0/16"), None))
            .collect();
        let deny = (0..40)
            .map(|n| rule(&format!("21.{n}.0.0/16"), Some(80..=n + 80)))
            .chain([rule("203.0.113.170/32", None)])
            .collect();
        let policy = policy(true, allow, deny);
        network.set_policy(&slot, &policy).await.unwrap();
        slots.push(slot);
    }
    // Neighbouring ranges without ports are one element.
    let full = BTreeMap::from([
        ("ruled", 8),
        ("named", 8),
        ("by_domain", 0),
        ("allow_hosts", 8),
        ("allow_ports", 0),
        ("deny_hosts", 8),
        ("deny_ports", 320),
    ]);
    assert_eq!(elements(&bed), full);

    run("nft", &["delete", "table", "inet", "soulbox_7e45"]).unwrap();
    eventually("the table with all its elements", || {
        bed.table_exists() && elements(&bed) == full
    })
    .await;
    assert_eq!(reach(&slots[0], target).await, REFUSED);

    // Somebody took an element away: the next change puts everything right.
    let mark = slots[1].address().to_string();
    let element = format!("{{ {mark} }}");
    run(
        "nft",
        &[
            "delete",
            "element",
            "inet",
            "soulbox_7e45",
            "ruled",
            &element,
        ],
    )
    .unwrap();
    network
        .set_policy(&slots[1], &EgressPolicy::open())
        .await
        .unwrap();
    assert_eq!(reach(&slots[1], target).await, Ok(()));
    assert_eq!(elements(&bed)["ruled"], 7);
    assert_eq!(elements(&bed)["deny_ports"], 280);

    slots.truncate(2);
    eventually("one policy left", || elements(&bed)["deny_ports"] == 40).await;
    slots.clear();
    eventually("no element left", || nothing(&bed)).await;
    network.close().await;
    assert!(!bed.table_exists());
}

#[tokio::test]
async fn too_many_rules_change_nothing() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e46", 46);
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    let many = vec![rule("9.9.9.9/32", None); 129];
    let refused = network.set_policy(&slot, &policy(true, vec![], many)).await;
    assert!(
        matches!(refused, Err(Error::PolicyTooLarge { rules: 129, .. })),
        "{refused:?}"
    );
    assert!(nothing(&bed));
    drop(slot);
    network.close().await;
}
