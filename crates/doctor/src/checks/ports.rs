//! Whether the server's addresses are free.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
};

use crate::report::Finding;

const OURS: &str = "soulbox";
/// In `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Each address with the option that chooses another.
pub(crate) fn check(addresses: &[(SocketAddr, &str)]) -> Finding {
    let mut served = Vec::new();
    for (address, option) in addresses {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let owner = owner(*address);
                if owner.as_ref().is_some_and(|owner| owner.name == OURS) {
                    served.push(address.to_string());
                    continue;
                }
                let who = owner.map_or_else(
                    || "another program (`ss -ltnp` shows which)".to_owned(),
                    |owner| format!("{} (process {})", owner.name, owner.pid),
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
        Finding::ok(format!("a SoulBox server listens on {}", served.join(", ")))
    }
}

struct Owner {
    pid: String,
    name: String,
}

/// Who listens there, as far as we may see.
fn owner(address: SocketAddr) -> Option<Owner> {
    let inode = ["tcp", "tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/net/{table}")).ok()?;
        listener(&text, address.port())
    })?;
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    for process in processes {
        // Not `self`, which is one of the others.
        if !process.file_name().as_encoded_bytes()[0].is_ascii_digit() {
            continue;
        }
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let holds = |file: fs::DirEntry| {
            fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == link.as_str())
        };
        if files.flatten().any(holds) {
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            return Some(Owner {
                pid: process.file_name().to_string_lossy().into_owned(),
                name: name.trim().to_owned(),
            });
        }
    }
    None
}

fn listener(table: &str, port: u16) -> Option<String> {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let ours = fields.get(1)?.ends_with(&ending) && *fields.get(3)? == LISTENING;
        ours.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Outcome;

    #[test]
    fn a_taken_port_is_told_with_its_owner_and_the_option() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let found = check(&[(address, "--listen")]);
        assert_eq!(found.outcome, Outcome::Fail);
        let pid = std::process::id().to_string();
        assert!(
            found.detail.contains("in use by") && found.detail.contains(&pid),
            "{}",
            found.detail
        );
        assert!(found.advice.unwrap().contains("--listen"));
        drop(taken);
        assert_eq!(check(&[(address, "--listen")]).outcome, Outcome::Ok);
    }
}
