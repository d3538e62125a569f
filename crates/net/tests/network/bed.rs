//! What the tests share: a network that cleans up after itself, a stand-in for the internet, and
//! work done inside a namespace.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use soulbox_net::{EgressRule, NetConfig, Network, Slot, connect_in};

pub(crate) const SOON: Duration = Duration::from_secs(2);
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Says why and returns true when the machine cannot run these tests.
pub(crate) fn skipped() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: making network namespaces needs root");
    }
    !root
}

/// A network of its own for one test, gone afterwards even when the test fails.
pub(crate) struct Bed {
    pub(crate) tag: &'static str,
    block: u8,
}

impl Bed {
    /// `block` is this test's own part of 10.220.0.0/16.
    pub(crate) fn new(tag: &'static str, block: u8) -> Self {
        let bed = Self { tag, block };
        bed.clean();
        bed
    }

    pub(crate) fn config(&self) -> NetConfig {
        NetConfig {
            instance_tag: self.tag.to_owned(),
            range: format!("10.220.{}.0/24", self.block).parse().unwrap(),
            max_slots: 32,
            pool: 2,
            open_ranges: Vec::new(),
            upstream_dns: Vec::new(),
        }
    }

    pub(crate) async fn open(&self) -> Network {
        Network::open(self.config()).await.unwrap()
    }

    /// Names of this test's links on the host.
    pub(crate) fn links(&self) -> Vec<String> {
        let text = std::fs::read_to_string("/proc/net/dev").unwrap();
        let names = text
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
        names.filter(|name| name.contains(self.tag)).collect()
    }

    pub(crate) async fn wait_for_links(&self, expected: usize) {
        eventually(&format!("{expected} links of {}", self.tag), || {
            self.links().len() == expected
        })
        .await;
    }

    /// How many elements a set of the table has.
    pub(crate) fn elements(&self, set: &str) -> usize {
        let table = format!("soulbox_{}", self.tag);
        let text = run("nft", &["-j", "list", "set", "inet", &table, set]).unwrap();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let listed = &told["nftables"][1]["set"]["elem"];
        listed.as_array().map_or(0, Vec::len)
    }

    pub(crate) fn table_exists(&self) -> bool {
        let table = format!("soulbox_{}", self.tag);
        let list = Command::new("nft")
            .args(["list", "table", "inet", &table])
            .output()
            .unwrap();
        list.status.success()
    }

    fn clean(&self) {
        for link in self.links() {
            run("ip", &["link", "delete", &link]).ok();
        }
        if self.table_exists() {
            run(
                "nft",
                &["delete", "table", "inet", &format!("soulbox_{}", self.tag)],
            )
            .ok();
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.clean();
    }
}

/// A host on the internet: a namespace with a public-looking address, reached by a real route.
pub(crate) struct Internet {
    name: String,
    link: String,
    pub(crate) address: Ipv4Addr,
}

impl Internet {
    pub(crate) fn new(address: [u8; 4], tag: &str) -> Self {
        let address = Ipv4Addr::from(address);
        let internet = Self {
            name: format!("sbtest-{tag}"),
            link: format!("it{tag}"),
            address,
        };
        internet.clean();
        let (name, link) = (internet.name.as_str(), internet.link.as_str());
        let far = address.to_string();
        let near = Ipv4Addr::from(u32::from(address) + 1).to_string();
        run("ip", &["netns", "add", name]).unwrap();
        run(
            "ip",
            &[
                "link", "add", link, "type", "veth", "peer", "eth0", "netns", name,
            ],
        )
        .unwrap();
        run("ip", &["addr", "add", &near, "peer", &far, "dev", link]).unwrap();
        run("ip", &["link", "set", link, "up"]).unwrap();
        run(
            "ip",
            &[
                "-n", name, "addr", "add", &far, "peer", &near, "dev", "eth0",
            ],
        )
        .unwrap();
        run("ip", &["-n", name, "link", "set", "eth0", "up"]).unwrap();
        run("ip", &["-n", name, "link", "set", "lo", "up"]).unwrap();
        internet
    }

    pub(crate) fn netns(&self) -> OwnedFd {
        std::fs::File::open(format!("/run/netns/{}", self.name))
            .unwrap()
            .into()
    }

    /// A TCP service; connections to it are accepted by the kernel until it is dropped.
    pub(crate) fn listen(&self, port: u16) -> std::net::TcpListener {
        let address = SocketAddr::from((self.address, port));
        inside(self.netns().as_fd(), move || {
            std::net::TcpListener::bind(address)
        })
        .unwrap()
    }

    fn clean(&self) {
        if std::fs::exists(format!("/run/netns/{}", self.name)).unwrap() {
            run("ip", &["netns", "delete", &self.name]).ok();
        }
        run("ip", &["link", "delete", &self.link]).ok();
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.clean();
    }
}

/// Runs something on a thread inside a namespace.
pub(crate) fn inside<T: Send + 'static>(
    netns: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let netns = netns.try_clone_to_owned().unwrap();
    let thread = std::thread::spawn(move || {
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    });
    thread.join().unwrap()
}

/// Whether a program in the slot can connect, and if not, why.
pub(crate) async fn reach(slot: &Slot, to: impl Into<SocketAddr>) -> Result<(), io::ErrorKind> {
    connect_in(slot.netns(), to.into(), SOON)
        .await
        .map(drop)
        .map_err(|error| error.kind())
}

pub(crate) fn rule(range: &str, ports: Option<RangeInclusive<u16>>) -> EgressRule {
    EgressRule {
        range: range.parse().unwrap(),
        ports,
    }
}

pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let give_up = tokio::time::Instant::now() + LIMIT;
    while !condition() {
        assert!(
            tokio::time::Instant::now() < give_up,
            "never happened: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}
