//! Whether the server's addresses are free.

use std::{
    fs,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use crate::report::Finding;

/// In the data folder; only the server that uses it has it open, and only root can.
const LOCK: &str = "lock";
/// In `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Each address with the option that chooses another. The server of this data folder may have them.
pub(crate) fn check(addresses: &[(SocketAddr, &str)], data_dir: &Path) -> Finding {
    let lock = fs::canonicalize(data_dir.join(LOCK)).ok();
    let mut served = Vec::new();
    for (address, option) in addresses {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let owner = owner(*address);
                let serves = |owner: &Owner| lock.as_ref().is_some_and(|lock| owner.has_open(lock));
                if owner.as_ref().is_some_and(serves) {
                    served.push(address.to_string());
                    continue;
                }
                let who = owner.map_or_else(
                    || "another program (`ss -ltnp` shows which)".to_owned(),
                    |owner| format!("{} (process {})", owner.name.escape_debug(), owner.pid),
                );
                return Finding::fail(
                    format!("{address} is in use by {who}"),
                    format!("stop it, or choose another address with {option}"),
                );
            }
            Err(error) => {
                return Finding::fail(
                    format!("{address}: {error}"),
                    format!("choose another address with {option}"),
                );
            }
        }
    }
    if served.is_empty() {
        Finding::ok("free")
    } else {
        let all = served.join(", ");
        Finding::ok(format!("the server of this data folder listens on {all}"))
    }
}

struct Owner {
    pid: String,
    /// As it calls itself, which may be anything.
    name: String,
}

impl Owner {
    fn has_open(&self, path: &Path) -> bool {
        open_files(&self.pid).any(|target| target == path)
    }
}

fn open_files(pid: &str) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    let files = files.into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok())
}

/// Who listens there, as far as we may see.
fn owner(address: SocketAddr) -> Option<Owner> {
    let inode = ["tcp", "tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/net/{table}")).ok()?;
        listener(&text, address)
    })?;
    let link = PathBuf::from(format!("socket:[{inode}]"));
    let processes = fs::read_dir("/proc").ok()?.flatten();
    for process in processes {
        // Not `self`, which is one of the others.
        if !process.file_name().as_encoded_bytes()[0].is_ascii_digit() {
            continue;
        }
        let pid = process.file_name().to_string_lossy().into_owned();
        if open_files(&pid).any(|target| target == link) {
            let name = fs::read(process.path().join("comm")).ok()?;
            let name = String::from_utf8_lossy(&name).trim().to_owned();
            return Some(Owner { pid, name });
        }
    }
    None
}

/// The socket that listens on this address, or on all of them.
fn listener(table: &str, address: SocketAddr) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let (ip, port) = (address_of(ip)?, u16::from_str_radix(port, 16).ok()?);
        let same = ip == address.ip() || ip.is_unspecified();
        let listens = *fields.get(3)? == LISTENING && port == address.port() && same;
        listens.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    })
}

/// The kernel writes addresses as words in the machine's own order.
fn address_of(hex: &str) -> Option<IpAddr> {
    let words: Option<Vec<[u8; 4]>> = hex
        .as_bytes()
        .chunks(8)
        .map(|word| {
            let text = std::str::from_utf8(word).ok()?;
            Some(u32::from_str_radix(text, 16).ok()?.to_ne_bytes())
        })
        .collect();
    let bytes = words?.concat();
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(four).into());
    }
    let sixteen = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(Ipv6Addr::from(sixteen).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Outcome;

    #[test]
    fn a_taken_port_is_told_with_its_owner_and_the_option() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let found = check(&[(address, "--listen")], Path::new("/"));
        assert_eq!(found.outcome, Outcome::Fail);
        let pid = std::process::id().to_string();
        assert!(
            found.detail.contains("in use by") && found.detail.contains(&pid),
            "{}",
            found.detail
        );
        assert!(found.advice.unwrap().contains("--listen"));
        drop(taken);
        assert_eq!(
            check(&[(address, "--listen")], Path::new("/")).outcome,
            Outcome::Ok
        );
    }
    #[test]
    fn the_server_of_the_data_folder_may_have_its_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = [(taken.local_addr().unwrap(), "--listen")];
        assert_eq!(check(&address, folder.path()).outcome, Outcome::Fail);
        let _lock = fs::File::create(folder.path().join(LOCK)).unwrap();
        assert_eq!(check(&address, folder.path()).outcome, Outcome::Ok);
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let table = "  sl  local_address rem_address   st\n\
            0: 0200007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 41 1\n\
            1: 0100007F:0BB8 00000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 42 1\n\
            2: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 43 1\n";
        let address = "127.0.0.1:3000".parse().unwrap();
        assert_eq!(listener(table, address).as_deref(), Some("43"));
        let all = "00000000000000000000000000000000";
        assert!(address_of(all).unwrap().is_unspecified());
        let mapped = "0000000000000000FFFF00000100007F";
        assert_eq!(address_of(mapped), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
