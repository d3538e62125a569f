//! What waits in the sockets of one namespace, unread or unsent.
//!
//! It is the kernel's memory, and most of it is charged to no control group: answers of netlink and
//! replies to a ping nowhere, received TCP only once its connection was accepted (v2), or not at all
//! (v1). So a limit of memory does not bound it, and whoever guards the machine's has to ask here.
//!
//! Counted is what the kernel holds (`truesize`), not what a program could read: a byte that came
//! alone takes some hundreds of them. Sockets that this server itself has in there are left out: how
//! much waits in those is up to strangers who use a program inside.
//!
//! - `diag`: TCP and UDP over `sock_diag`: exact for TCP, and one pass over however many there are
//! - `rows`: the tables of `/proc/net`, for the others

mod diag;
mod rows;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use self::diag::Diag;
use self::rows::{TABLES, Table};
use crate::connect::threads;
use crate::threads::enter;

/// For each table, so that none can take the time of another. A hundred thousand connections take
/// some tenths of a second.
const TABLE_LIMIT: Duration = Duration::from_millis(500);
/// For all of them. To get here takes tens of thousands of sockets in several tables.
const LIMIT: Duration = Duration::from_millis(2500);
const BUFFER: usize = 64 * 1024;
/// `sockstat` has some 200 characters.
const LONGEST_SOCKSTAT: u64 = 4096;

/// Of one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMemory {
    /// Of the kernel's memory.
    pub bytes: u64,
    /// How many there are, of any kind.
    pub sockets: u64,
    /// `false`: time was over before all of them were counted.
    pub complete: bool,
}

/// What was counted of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    bytes: u64,
    complete: bool,
}

/// What waits in sockets of this namespace. UNIX sockets are not among them: theirs is charged to
/// who sent it.
pub async fn socket_memory_in(netns: BorrowedFd<'_>) -> io::Result<SocketMemory> {
    // The caller's descriptor may be closed before the thread gets to the job.
    let namespace = netns.try_clone_to_owned()?;
    // Only opening needs a thread in there: files and sockets keep their namespace.
    let opened = threads()?
        .run(move || Opened::in_namespace(&namespace))
        .await??;
    tokio::task::spawn_blocking(move || opened.sum())
        .await
        .map_err(io::Error::other)?
}

/// Everything that tells of sockets in one namespace.
struct Opened {
    tables: Vec<(&'static Table, File, Option<Diag>)>,
    sockstat: File,
}

impl Opened {
    fn in_namespace(namespace: &OwnedFd) -> io::Result<Self> {
        enter(namespace.as_fd())?;
        let mut tables = Vec::with_capacity(TABLES.len());
        for table in &TABLES {
            match open(table.name) {
                Ok(file) => {
                    let diag = table.diag.and_then(|which| Diag::open(which).ok());
                    tables.push((table, file, diag));
                }
                // A kernel without IPv6, for one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            tables,
            sockstat: open("sockstat")?,
        })
    }

    fn sum(self) -> io::Result<SocketMemory> {
        let server = rustix::process::geteuid().as_raw();
        let end = Instant::now() + LIMIT;
        let mut all = SocketMemory {
            bytes: 0,
            sockets: number_of_sockets(self.sockstat)?,
            complete: true,
        };
        for (table, file, diag) in self.tables {
            let until = end.min(Instant::now() + TABLE_LIMIT);
            let told = diag.map(|mut diag| diag.sum(server, until));
            let sum = if let Some(Ok(sum)) = told {
                sum
            } else {
                // Not a kind that `sock_diag` is asked for, or a kernel without it.
                let mut rows = BufReader::with_capacity(BUFFER, file);
                rows::sum(&mut rows, table, server, until)?
            };
            all.bytes = all.bytes.saturating_add(sum.bytes);
            all.complete &= sum.complete;
        }
        Ok(all)
    }
}

fn open(name: &str) -> io::Result<File> {
    File::open(format!("/proc/thread-self/net/{name}"))
}

/// `sockets: used 17`: unlike the rest of that file, of the namespace.
fn number_of_sockets(sockstat: File) -> io::Result<u64> {
    let mut text = String::new();
    sockstat.take(LONGEST_SOCKSTAT).read_to_string(&mut text)?;
    let told = text
        .lines()
        .find_map(|line| line.strip_prefix("sockets: used "));
    let number = told.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod properties;
