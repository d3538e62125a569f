//! Tables of sockets, as text: one row for each.

use std::io::{self, BufRead, Read};
use std::ops::RangeInclusive;
use std::time::Instant;

use super::Sum;
use super::diag::Which;

/// The kernel's rows have some 150 characters.
const LONGEST: u64 = 1024;

#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    bytes: Columns,
    owner: Option<Owner>,
    /// How `sock_diag` calls these.
    pub(super) diag: Option<Which>,
}

/// Where in a row the bytes are.
#[derive(Debug)]
enum Columns {
    Decimal(RangeInclusive<usize>),
    /// `tx_queue:rx_queue`, hexadecimal.
    Queues(usize),
}

/// Where in a row it says whose it is. One without an inode is nobody's file.
#[derive(Debug)]
struct Owner {
    uid: usize,
    inode: usize,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// `AF_INET` and `AF_INET6`.
const V4: u8 = 2;
const V6: u8 = 10;

/// The order of columns is the kernel's interface: the same since Linux 2.6. TCP's queues are what a
/// program could read, which is less than what is held: `sock_diag` is asked first.
pub(super) const TABLES: [Table; 10] = [
    told_by_diag("tcp", V4, TCP),
    told_by_diag("tcp6", V6, TCP),
    told_by_diag("udp", V4, UDP),
    told_by_diag("udp6", V6, UDP),
    decimal("netlink", 4..=5, None),
    decimal("packet", 6..=6, Some(Owner { uid: 7, inode: 8 })),
    queues("icmp"),
    queues("icmp6"),
    queues("raw"),
    queues("raw6"),
];

const fn decimal(
    name: &'static str,
    columns: RangeInclusive<usize>,
    owner: Option<Owner>,
) -> Table {
    Table {
        name,
        bytes: Columns::Decimal(columns),
        owner,
        diag: None,
    }
}

const fn queues(name: &'static str) -> Table {
    Table {
        name,
        bytes: Columns::Queues(4),
        owner: Some(Owner { uid: 7, inode: 9 }),
        diag: None,
    }
}

const fn told_by_diag(name: &'static str, family: u8, protocol: u8) -> Table {
    Table {
        diag: Some(Which { family, protocol }),
        ..queues(name)
    }
}

/// Of all rows but the server's, or of those that were read in time. How many there are is up to the
/// sandbox, so they are never held together.
pub(super) fn sum(
    rows: &mut impl BufRead,
    table: &Table,
    server: u32,
    until: Instant,
) -> io::Result<Sum> {
    let (mut bytes, mut row) = (0_u64, Vec::new());
    while Instant::now() < until {
        row.clear();
        if rows.by_ref().take(LONGEST).read_until(b'\n', &mut row)? == 0 {
            return Ok(Sum {
                bytes,
                complete: true,
            });
        }
        bytes = bytes.saturating_add(bytes_in(&row, table, server));
    }
    Ok(Sum {
        bytes,
        complete: false,
    })
}

/// 0 of a row that is none, like the first one, and of the server's.
pub(super) fn bytes_in(row: &[u8], table: &Table, server: u32) -> u64 {
    let Ok(row) = std::str::from_utf8(row) else {
        return 0;
    };
    let mut fields = row.split_ascii_whitespace();
    if let Some(Owner { uid, inode }) = table.owner {
        let number = |column| fields.clone().nth(column)?.parse::<u64>().ok();
        if number(uid) == Some(server.into()) && number(inode) != Some(0) {
            return 0;
        }
    }
    match &table.bytes {
        Columns::Decimal(columns) => fields
            .skip(*columns.start())
            .take(columns.end() - columns.start() + 1)
            .map(|field| field.parse().unwrap_or(0))
            .fold(0, u64::saturating_add),
        Columns::Queues(column) => {
            let queues = fields.nth(*column).and_then(|field| field.split_once(':'));
            queues.map_or(0, |(sent, received)| {
                [sent, received]
                    .into_iter()
                    .map(|queue| u64::from(u32::from_str_radix(queue, 16).unwrap_or(0)))
                    .sum()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Of nobody in the tables below.
    const SERVER: u32 = 77;

    fn table(name: &str) -> &'static Table {
        TABLES.iter().find(|each| each.name == name).unwrap()
    }

    fn sum_of(name: &str, text: &str) -> u64 {
        sum_without(SERVER, name, text)
    }

    fn sum_without(server: u32, name: &str, text: &str) -> u64 {
        let until = Instant::now() + Duration::from_mins(1);
        let sum = sum(&mut text.as_bytes(), table(name), server, until).unwrap();
        assert!(sum.complete);
        sum.bytes
    }

    #[test]
    fn the_kernels_rows_are_read() {
        let netlink = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
00000000435a2804 0   3329688731 00000000 8134400  0        0     2        35       36523   
000000007fb94bf2 4   0          00000000 0        256      0     2        0        36524   
";
        assert_eq!(sum_of("netlink", netlink), 8_134_400 + 256);
        let udp = "   \
sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops             
  137: 0100007F:0035 00000000:0000 07 00000100:00033F00 00:00000000 00000000  1000        0 5 2 0000000000000000 12        
100000: 0100007F:0036 00000000:0000 07 00000000:00000001 00:00000000 00000000  1000        0 6 2 0000000000000000 0         
";
        assert_eq!(sum_of("udp", udp), 0x100 + 0x33f00 + 1);
        let icmp6 = "  \
sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
    0: 00000000000000000000000000000000:0001 00000000000000000000000000000000:0000 07 00000000:00000A00 00:00000000 00000000     0        0 7 2 0000000000000000 0
";
        assert_eq!(sum_of("icmp6", icmp6), 0xa00);
        let packet = "\
sk               RefCnt Type Proto  Iface R Rmem   User   Inode
0000000000000000 3      3    0003   0     1 4352   0      9
";
        assert_eq!(sum_of("packet", packet), 4352);
        assert_eq!(sum_without(0, "packet", packet), 0);
    }

    #[test]
    fn what_the_server_has_in_there_is_not_the_sandboxs() {
        let tcp = "  \
sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     
   0: 0100007F:0035 0100007F:9A3C 01 00000000:00000010 00:00000000 00000000 100000        0 5 1 0000000000000000 20 4 30 10 -1
   1: 0100007F:9A3C 0100007F:0035 01 00000100:00000000 01:00000000 00000000     0        0 6 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:0035 0100007F:9A3D 01 00000000:00000001 00:00000000 00000000     0        0 0 1 0000000000000000 20 4 30 10 -1
";
        assert_eq!(sum_without(77, "tcp", tcp), 0x111);
        // The last one waits to be accepted, by whomever.
        assert_eq!(sum_without(0, "tcp", tcp), 0x11);
    }

    #[test]
    fn when_the_time_is_over_the_sum_says_so() {
        let mut endless = io::BufReader::new(io::repeat(b'\n'));
        let until = Instant::now() + Duration::from_millis(5);
        let counted = sum(&mut endless, table("udp"), SERVER, until).unwrap();
        let expected = Sum {
            bytes: 0,
            complete: false,
        };
        assert_eq!(counted, expected);
    }
}
