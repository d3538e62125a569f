//! On a real table, in a network namespace of the test's own.

use super::*;

const NEW: u16 = SUBSYSTEM;
const CREATE: u16 = 0x400;
const REPLY: u16 = 2;
const TIMEOUT: u16 = 7;
const DESTINATION: u16 = 2;
const TUPLE_PROTOCOL: u16 = 2;
const UDP: u8 = 17;

/// Runs where nobody else has connections; `false` without the right to.
fn alone(work: impl FnOnce(Flows) + Send + 'static) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a network namespace needs root");
        return false;
    }
    let thread = std::thread::spawn(|| {
        let _here = crate::namespace::Namespace::create().unwrap();
        work(Flows::open().unwrap());
    });
    thread.join().unwrap();
    true
}

fn tuple(kind: u16, from: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut addresses = plain(SOURCE, &from);
    addresses.extend(plain(DESTINATION, &to));
    let mut protocol = plain(1, &[UDP]);
    protocol.extend(plain(2, &ports.0.to_be_bytes()));
    protocol.extend(plain(3, &ports.1.to_be_bytes()));
    let mut both = nested(TUPLE_ADDRESSES, &addresses);
    both.extend(nested(TUPLE_PROTOCOL, &protocol));
    nested(kind, &both)
}

impl Flows {
    /// As if a packet had passed.
    fn add(&mut self, from: [u8; 4], port: u16) {
        let to = [203, 0, 113, 9];
        let mut attributes = tuple(ORIGINAL, from, to, (port, 53));
        attributes.extend(tuple(REPLY, to, from, (53, port)));
        attributes.extend(plain(TIMEOUT, &600_u32.to_be_bytes()));
        let mut request = Vec::new();
        self.push(&mut request, NEW, NLM_F_ACK | CREATE, &attributes);
        self.send(&request).unwrap();
        self.receive(|kind, _, body| {
            assert_eq!(kind, ERROR);
            assert!(refusal(body).is_none(), "{:?}", refusal(body));
        })
        .unwrap();
    }

    fn counts(&mut self) -> Vec<usize> {
        let all = self.list(|_| true).unwrap();
        counted(&all).into_values().collect()
    }
}

#[test]
fn connections_are_listed_and_deleted_by_who_began_them() {
    alone(|mut flows| {
        for port in 1..=300 {
            flows.add([10, 0, 0, 1], port);
        }
        for port in 1..=7 {
            flows.add([10, 0, 0, 2], port);
        }
        assert_eq!(flows.counts(), [300, 7]);
        let [first, second] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let found = flows.list_of(first).unwrap();
        assert_eq!(found.len(), 300);
        assert!(found.iter().all(|flow| flow.source == first));
        assert_eq!(flows.list(|source| source == second).unwrap().len(), 7);
        assert_eq!(flows.delete(&found[..200]).unwrap(), 200);
        assert_eq!(flows.counts(), [100, 7]);
        assert_eq!(flows.delete(&found).unwrap(), 100, "the others are gone");
        assert_eq!(flows.counts(), [7]);
        assert_eq!(flows.list_of(first).unwrap().len(), 0);
    });
}

#[test]
fn who_has_more_than_its_share_loses_the_rest() {
    alone(|mut flows| {
        for (last, count) in [(1, 400), (2, 90), (3, 5)] {
            for port in 1..=count {
                flows.add([10, 0, 0, last], port);
            }
        }
        let walked = flows.cut(|_| true, 495).unwrap();
        assert!(
            matches!(walked, ScanResult::Within(495)),
            "all fit: {walked:?}"
        );
        let ScanResult::Removed(cut) = flows.cut(|_| true, 105).unwrap() else {
            panic!("they do not fit");
        };
        assert_eq!((cut.share, cut.deleted, cut.sandboxes), (50, 390, 2));
        assert_eq!(flows.counts(), [50, 50, 5]);
        // What others have is not ours to take.
        let third = Ipv4Addr::new(10, 0, 0, 3);
        let walked = flows.cut(|source| source == third, 2).unwrap();
        assert!(
            matches!(walked, ScanResult::Removed(Removed { deleted: 3, .. })),
            "{walked:?}"
        );
        assert_eq!(flows.counts(), [50, 50, 2]);
    });
}
