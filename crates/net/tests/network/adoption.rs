//! A killed server loses no sandbox, and a sandbox without internet never gets it in between.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use soulbox_net::{EgressPolicy, Error, Network, Slot, connect_in};

use crate::bed::{Bed, Internet, LIMIT, inside, reach, rule, run, skipped};

/// Long enough for a connection that is let through, and below the second after which a dropped
/// first packet is sent again.
const BRIEFLY: Duration = Duration::from_millis(500);
const ROLE: &str = "SOULBOX_NET_TEST_ROLE";
const THIS_TEST: &str = "adoption::a_killed_server_loses_no_sandbox_and_opens_none";

/// A process that is killed however the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The sandbox: any process that lives in the namespace.
fn sandbox_in(slot: &Slot) -> Child {
    inside(slot.netns(), || {
        Command::new("sleep").arg("60").spawn().unwrap()
    })
}

fn namespace_of(pid: u32) -> OwnedFd {
    std::fs::File::open(format!("/proc/{pid}/ns/net"))
        .unwrap()
        .into()
}

/// All but one port of the stand-in for the internet is closed.
fn ruled() -> EgressPolicy {
    EgressPolicy {
        internet: false,
        allow: vec![rule("203.0.113.230/32", Some(443..=443))],
        allow_names: Vec::new(),
        deny: Vec::new(),
    }
}

/// The server that will be killed: sandboxes with internet, without, and with rules.
#[expect(
    clippy::zombie_processes,
    reason = "the sandboxes outlive this process on purpose"
)]
async fn server(bed: &Bed) {
    let network = bed.open().await;
    for policy in [EgressPolicy::open(), EgressPolicy::closed(), ruled()] {
        let slot = network.acquire().await.unwrap();
        network.set_policy(&slot, &policy).await.unwrap();
        let sandbox = sandbox_in(&slot);
        println!("\nsandbox {} {}", slot.index(), sandbox.id());
        std::mem::forget(slot);
    }
    println!("\nready");
    tokio::time::sleep(LIMIT).await;
}

#[tokio::test]
async fn a_killed_server_loses_no_sandbox_and_opens_none() {
    if skipped() {
        return;
    }
    if std::env::var_os(ROLE).is_some() {
        // Not `Bed::new`, whose clean-up is the parent's.
        return server(&std::mem::ManuallyDrop::new(Bed::new("7e31", 31))).await;
    }
    let bed = Bed::new("7e31", 31);
    let internet = Internet::new([203, 0, 113, 230], "7e31");
    let _services = [internet.listen(443), internet.listen(80)];
    let target = SocketAddr::from((internet.address, 443));

    let mut server = Killed(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", THIS_TEST, "--nocapture"])
            .env(ROLE, "server")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut sandboxes = Vec::new();
    for line in lines
        .map_while(Result::ok)
        .take_while(|line| line != "ready")
    {
        if let Some(rest) = line.strip_prefix("sandbox ") {
            let (index, pid) = rest.split_once(' ').unwrap();
            sandboxes.push((index.parse::<u32>().unwrap(), Process(pid.parse().unwrap())));
        }
    }
    let [
        (open, open_pid),
        (closed, closed_pid),
        (limited, limited_pid),
    ] = &sandboxes[..]
    else {
        panic!("{sandboxes:?}")
    };
    drop(server);
    // Three sandboxes and the gateway: the killed server's ready slots go by themselves.
    bed.wait_for_links(4).await;
    assert!(bed.table_exists());

    let network = bed.open().await;
    let fresh = network.acquire().await.unwrap();
    assert!(![open, closed, limited].contains(&&fresh.index()));
    let (opened, shut) = (EgressPolicy::open(), EgressPolicy::closed());
    let strange = network
        .adopt(*open, namespace_of(closed_pid.0), &opened)
        .await;
    assert!(
        matches!(strange, Err(Error::NotAdoptable { .. })),
        "{strange:?}"
    );

    let first = network
        .adopt(*open, namespace_of(open_pid.0), &opened)
        .await
        .unwrap();
    let second = network
        .adopt(*closed, namespace_of(closed_pid.0), &shut)
        .await
        .unwrap();
    assert_eq!(reach(&first, target).await, Ok(()));
    assert_eq!(
        reach(&second, target).await,
        Err(ErrorKind::ConnectionRefused)
    );
    let before = connect_in(namespace_of(limited_pid.0).as_fd(), target, BRIEFLY).await;
    assert_eq!(
        before.map(drop).map_err(|error| error.kind()),
        Err(ErrorKind::TimedOut),
        "its rules are not known yet: it waits"
    );
    let third = network
        .adopt(*limited, namespace_of(limited_pid.0), &ruled())
        .await
        .unwrap();
    assert_eq!(reach(&third, target).await, Ok(()));
    assert_eq!(
        reach(&third, (internet.address, 80)).await,
        Err(ErrorKind::ConnectionRefused)
    );
    let twice = network
        .adopt(*open, namespace_of(open_pid.0), &opened)
        .await;
    assert!(
        matches!(twice, Err(Error::NotAdoptable { .. })),
        "{twice:?}"
    );

    drop((first, second, third, fresh));
    drop(sandboxes);
    network.close().await;
    assert!(bed.links().is_empty() && !bed.table_exists());
}

#[tokio::test]
async fn between_two_servers_a_closed_sandbox_stays_closed() {
    if skipped() {
        return;
    }
    let bed = Bed::new("7e32", 32);
    let internet = Internet::new([203, 0, 113, 240], "7e32");
    let _service = internet.listen(443);
    let target = SocketAddr::from((internet.address, 443));
    let network = bed.open().await;
    let slot = network.acquire().await.unwrap();
    network
        .set_policy(&slot, &EgressPolicy::closed())
        .await
        .unwrap();
    drop(network);
    assert_eq!(
        reach(&slot, target).await,
        Err(ErrorKind::ConnectionRefused),
        "no server"
    );
    // The slot's sandbox tries all the time while the next server opens.
    let opening = Network::open(bed.config());
    let trying = async {
        for _ in 0..50 {
            assert_eq!(
                reach(&slot, target).await,
                Err(ErrorKind::ConnectionRefused)
            );
        }
    };
    let (network, ()) = tokio::join!(opening, trying);
    let network = network.unwrap();
    assert_eq!(
        reach(&slot, target).await,
        Err(ErrorKind::ConnectionRefused),
        "not adopted yet"
    );
    drop(slot);
    network.close().await;
}

/// A process that is not our child.
#[derive(Debug)]
struct Process(u32);

impl Drop for Process {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
    }
}

#[tokio::test]
async fn a_table_that_guards_nothing_goes_with_the_next_start_of_any_server() {
    if skipped() {
        return;
    }
    let gone = Bed::new("7e5a", 60);
    let killed = Bed::new("7e5b", 61);
    run("nft", &["add", "table", "inet", "soulbox_7e5a"]).unwrap();
    drop(killed.open().await);
    killed.wait_for_links(1).await;

    let bed = Bed::new("7e5c", 62);
    let network = bed.open().await;
    assert!(!gone.table_exists(), "nothing is behind it");
    assert!(
        killed.table_exists(),
        "its gateway is there: it may come back"
    );
    network.close().await;
}
