//! Other people's firewalls: they stop sandboxes, the advice is told, and following it to the
//! letter helps. Each on a machine of its own, as far as the network goes: a policy of drop would
//! cut off whatever else runs here.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use soulbox_net::{NetConfig, Network, Slot};

use crate::bed::{Bed, Internet, SOON, reach, run, skipped};
use crate::by_name::names;
use crate::names::{ask_within, expected, fake_upstream};

const INSIDE: &str = "SOULBOX_TEST_OWN_NETWORK";

/// Runs a test once more, in a network namespace of its own; true in there.
fn on_its_own_machine(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        run("ip", &["link", "set", "lo", "up"]).unwrap();
        return true;
    }
    let status = Command::new("unshare")
        .args(["--net", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed on a machine of its own");
    false
}

fn shell(line: &str) {
    run("sh", &["-euc", line]).unwrap();
}

/// The commands in a warning: what is in backquotes and can be run.
fn commands(warnings: &[String]) -> Vec<&str> {
    let quoted = warnings
        .iter()
        .flat_map(|warning| warning.split('`').skip(1).step_by(2));
    quoted
        .filter(|text| text.starts_with("nft ") || text.starts_with("iptables"))
        .collect()
}

/// What a sandbox gets: the internet, names by UDP and by TCP, and, if it has rules with names, the
/// listener that reads them.
async fn gets([slot, by_name]: &[Slot; 2], internet: &Internet) -> [bool; 4] {
    let gateway = SocketAddr::from((slot.gateway(), 53));
    let answer = ask_within(slot.netns(), gateway, Duration::from_secs(1)).await;
    [
        reach(slot, (internet.address, 443)).await.is_ok(),
        answer.is_ok_and(|answer| answer == expected()),
        reach(slot, gateway).await.is_ok(),
        reach(by_name, (internet.address, 443)).await.is_ok(),
    ]
}

async fn two_slots(network: &Network) -> [Slot; 2] {
    let (plain, by_name) = (network.acquire().await, network.acquire().await);
    let slots = [plain.unwrap(), by_name.unwrap()];
    network
        .set_policy(&slots[1], &names(&["one.test"]))
        .await
        .unwrap();
    slots
}

/// Sets up a firewall, sees that it stops everything, follows the advice, and sees that it helps.
async fn advice_helps(tag: &'static str, block: u8, firewall: &str, port_taken: bool) {
    let bed = Bed::new(tag, block);
    let internet = Internet::new([203, 0, 113, 200], tag);
    let _service = internet.listen(443);
    let _theirs = port_taken.then(|| UdpSocket::bind("0.0.0.0:53").unwrap());
    shell(firewall);
    let (upstream, server) = fake_upstream().await;
    let config = NetConfig {
        upstream_dns: vec![upstream],
        ..bed.config()
    };
    let network = Network::open(config.clone()).await.unwrap();
    let slots = two_slots(&network).await;
    assert_eq!(gets(&slots, &internet).await, [false; 4], "{firewall}");

    let advice = commands(network.warnings());
    assert_eq!(advice.len(), 6, "{:?}", network.warnings());
    for command in advice {
        shell(command);
    }
    assert_eq!(
        gets(&slots, &internet).await,
        [true; 4],
        "{:?}",
        network.warnings()
    );
    drop(slots);
    network.close().await;

    let again = Network::open(config).await.unwrap();
    assert!(again.warnings().is_empty(), "{:?}", again.warnings());
    let slots = two_slots(&again).await;
    assert_eq!(gets(&slots, &internet).await, [true; 4], "after a restart");
    drop(slots);
    again.close().await;
    server.abort();
}

/// `lo` is let in because the stand-in for the host's name server is there.
const NATIVE: &str = r"nft -f - <<'END'
table inet filter {
    chain input { type filter hook input priority filter; policy drop; iifname lo accept; }
    chain forward { type filter hook forward priority filter; policy drop; }
}
END";

#[tokio::test]
async fn advice_for_a_native_drop_policy_helps() {
    if skipped() || !on_its_own_machine("firewalls::advice_for_a_native_drop_policy_helps") {
        return;
    }
    advice_helps("7e41", 41, NATIVE, false).await;
}

#[tokio::test]
async fn advice_helps_where_a_name_server_of_the_host_has_the_port() {
    let this = "firewalls::advice_helps_where_a_name_server_of_the_host_has_the_port";
    if skipped() || !on_its_own_machine(this) {
        return;
    }
    advice_helps("7e42", 42, NATIVE, true).await;
}

#[tokio::test]
async fn advice_for_rules_that_end_in_a_refusal_helps() {
    if skipped() || !on_its_own_machine("firewalls::advice_for_rules_that_end_in_a_refusal_helps") {
        return;
    }
    let refusing = r#"nft -f - <<'END'
table ip guard {
    chain input { type filter hook input priority filter + 10; iifname lo accept; counter reject; }
    chain forward { type filter hook forward priority filter + 10; log prefix "no " drop; }
}
END"#;
    advice_helps("7e43", 43, refusing, false).await;
}

#[tokio::test]
async fn advice_for_iptables_and_docker_helps() {
    if skipped() || !on_its_own_machine("firewalls::advice_for_iptables_and_docker_helps") {
        return;
    }
    if let Err(error) = run("iptables", &["-P", "FORWARD", "DROP"]) {
        eprintln!("skipped: iptables does not work here: {error}");
        return;
    }
    let docker = "iptables -N DOCKER-USER; iptables -A DOCKER-USER -j RETURN; \
         iptables -A FORWARD -j DOCKER-USER; \
         iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; \
         iptables -A INPUT -i lo -j ACCEPT; iptables -P INPUT DROP";
    advice_helps("7e44", 44, docker, true).await;
}

#[tokio::test]
async fn a_machine_without_a_firewall_gets_no_advice() {
    if skipped() || !on_its_own_machine("firewalls::a_machine_without_a_firewall_gets_no_advice") {
        return;
    }
    let bed = Bed::new("7e45", 45);
    shell(
        "nft add table inet filter; nft 'add chain inet filter forward { type filter hook forward priority 0; }'",
    );
    let network = bed.open().await;
    assert!(network.warnings().is_empty(), "{:?}", network.warnings());
    tokio::time::timeout(SOON * 5, network.close())
        .await
        .unwrap();
}
