//! What holds of whatever is told of sockets.

use std::time::{Duration, Instant};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::diag::held_by;
use super::rows::{TABLES, bytes_in, sum};
use crate::flows::attributes::plain;

const SERVER: u32 = 0;

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_rows_are_summed(queues in vec(any::<[u32; 2]>(), 0..50), memory in vec(any::<[u32; 2]>(), 0..50)) {
        let mut udp = vec!["  sl  local_address rem_address   st tx_queue rx_queue\n".to_owned()];
        for (row, [sent, received]) in queues.iter().enumerate() {
            udp.push(format!("{row:5}: 0100007F:0035 00000000:0000 07 {sent:08X}:{received:08X} 00:00000000 0\n"));
        }
        let mut netlink = vec!["sk Eth Pid Groups Rmem Wmem Dump\n".to_owned()];
        for [received, sent] in &memory {
            netlink.push(format!("00000000435a2804 0   3329688731 00000000 {received:<8} {sent:<8} 0 2 35 36523\n"));
        }
        let total = |pairs: &[[u32; 2]]| pairs.iter().flatten().map(|n| u64::from(*n)).sum::<u64>();
        prop_assert_eq!(sum(&mut udp.concat().as_bytes(), &TABLES[2], SERVER, soon()).unwrap().bytes, total(&queues));
        prop_assert_eq!(sum(&mut netlink.concat().as_bytes(), &TABLES[4], SERVER, soon()).unwrap().bytes, total(&memory));
    }

    #[test]
    fn any_text_can_be_summed(bytes in vec(any::<u8>(), 0..3000), line in "[0-9a-fA-F: \t]{0,200}") {
        for table in &TABLES {
            prop_assert!(sum(&mut bytes.as_slice(), table, SERVER, soon()).is_ok());
            let _any = bytes_in(line.as_bytes(), table, SERVER);
        }
    }

    #[test]
    fn what_a_connection_holds_is_found_among_other_attributes(
        memory in any::<[u32; 9]>(),
        before in vec(any::<u8>(), 0..20),
        owner in 0..3_u32,
        inode in 0..3_u32,
    ) {
        let mut answer = vec![0; 64];
        answer.extend(owner.to_ne_bytes());
        answer.extend(inode.to_ne_bytes());
        answer.extend(plain(99, &before));
        answer.extend(plain(7, &memory.map(u32::to_ne_bytes).concat()));
        let held: u64 = [0, 4, 5, 7].map(|word: usize| u64::from(memory[word])).iter().sum();
        let is_servers = owner == SERVER && inode != 0;
        prop_assert_eq!(held_by(&answer, SERVER), if is_servers { 0 } else { held });
    }

    #[test]
    fn any_answer_can_be_looked_at(
        bytes in vec(any::<u8>(), 0..200),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let _any = held_by(&bytes, SERVER);
        let mut damaged = vec![0; 72];
        damaged.extend(plain(7, &[1; 36]));
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        prop_assert!(held_by(&damaged, SERVER) <= 4 * u64::from(u32::MAX));
    }
}
