use super::*;

fn ours() -> OwnRules {
    OwnRules {
        table: "soulbox_00aa".to_owned(),
        links: "sb00aa".to_owned(),
        gateway: Ipv4Addr::new(10, 213, 0, 1),
    }
}

fn hooked(family: &str, table: &str, name: &str, hook: &str, policy: &str) -> String {
    format!(
        r#"{{"chain":{{"family":"{family}","table":"{table}","name":"{name}","handle":1,
        "type":"filter","hook":"{hook}","prio":0,"policy":"{policy}"}}}}"#
    )
}

fn chain(family: &str, table: &str, name: &str) -> String {
    format!(r#"{{"chain":{{"family":"{family}","table":"{table}","name":"{name}","handle":9}}}}"#)
}

fn rule(family: &str, table: &str, chain: &str, expr: &str) -> String {
    format!(
        r#"{{"rule":{{"family":"{family}","table":"{table}","chain":"{chain}","handle":9,
        "expr":[{expr}]}}}}"#
    )
}

fn found(items: &[String]) -> Vec<String> {
    let json = format!(
        r#"{{"nftables":[{{"metainfo":{{"version":"1.0.6"}}}},{}]}}"#,
        items.join(",")
    );
    let tables = Table::read_nft(json.as_bytes(), "sb00aa");
    tables
        .iter()
        .flat_map(|table| judge(table, Some("iptables"), &ours()))
        .collect()
}

const FROM_US: &str =
    r#"{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":"sb00aa*"}}"#;
const COUNTER: &str = r#"{"counter":{"packets":0,"bytes":0}}"#;

#[track_caller]
fn assert_advises(warnings: &[String], commands: &[&str]) {
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for command in commands {
        assert!(
            warnings[0].contains(&format!("`{command}`")),
            "{command} in {}",
            warnings[0]
        );
    }
}

#[test]
fn a_native_chain_gets_commands_of_nft() {
    assert_advises(
        &found(&[hooked("inet", "filter", "forward", "forward", "drop")]),
        &[
            r#"nft insert rule inet filter forward iifname "sb00aa*" accept"#,
            r#"nft insert rule inet filter forward oifname "sb00aa*" ct state established,related accept"#,
        ],
    );
    assert_advises(
        &found(&[hooked("ip", "mine", "in", "input", "drop")]),
        &[
            r#"nft insert rule ip mine in iifname "sb00aa*" meta l4proto udp ct original proto-dst 53 accept"#,
        ],
    );
}

#[test]
fn a_chain_of_iptables_gets_its_commands_and_dockers_chain_is_preferred() {
    let forward = hooked("ip", "filter", "FORWARD", "forward", "drop");
    assert_advises(
        &found(std::slice::from_ref(&forward)),
        &["iptables -I FORWARD -i sb00aa+ -j ACCEPT"],
    );
    assert_advises(
        &found(&[forward, chain("ip", "filter", "DOCKER-USER")]),
        &[
            "iptables -I DOCKER-USER -i sb00aa+ -j ACCEPT",
            "iptables -I DOCKER-USER -o sb00aa+ -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        ],
    );
    let input = [hooked("ip", "filter", "INPUT", "input", "drop")];
    assert_advises(
        &found(&input),
        &["iptables -I INPUT -i sb00aa+ -p tcp -m conntrack --ctorigdstport 53 -j ACCEPT"],
    );
}

#[test]
fn a_table_that_looks_like_that_of_iptables_gets_nft_where_there_is_none() {
    let json = format!(
        r#"{{"nftables":[{}]}}"#,
        hooked("ip", "filter", "FORWARD", "forward", "drop")
    );
    let tables = Table::read_nft(json.as_bytes(), "sb00aa");
    assert_advises(
        &judge(&tables[0], None, &ours()),
        &[r#"nft insert rule ip filter FORWARD iifname "sb00aa*" accept"#],
    );
}

#[test]
fn ufw_and_firewalld_are_spoken_to_in_their_words() {
    let ufw = [
        chain("ip", "filter", "ufw-user-forward"),
        hooked("ip", "filter", "INPUT", "input", "drop"),
        hooked("ip", "filter", "FORWARD", "forward", "drop"),
    ];
    let warnings = found(&ufw);
    assert_eq!(warnings.len(), 2);
    assert_advises(&warnings[..1], &["ufw allow in on sb00aa+ to 10.213.0.1"]);
    assert_advises(&warnings[1..], &["ufw route allow in on sb00aa+"]);

    let reject = r#"{"reject":{"type":"icmpx","expr":"admin-prohibited"}}"#;
    let firewalld = [
        hooked("inet", "firewalld", "filter_INPUT", "input", "accept"),
        hooked("inet", "firewalld", "filter_FORWARD", "forward", "accept"),
        rule("inet", "firewalld", "filter_INPUT", reject),
        rule("inet", "firewalld", "filter_FORWARD", reject),
    ];
    assert_advises(
        &found(&firewalld),
        &[
            "firewall-cmd --permanent --zone=trusted --add-interface=sb00aa+",
            "firewall-cmd --reload",
        ],
    );
}

#[test]
fn a_last_rule_that_turns_everything_away_is_like_a_policy() {
    let forward = hooked("inet", "filter", "forward", "forward", "accept");
    for refusal in [
        r#"{"drop":null}"#,
        r#"{"xt":{"type":"target","name":"REJECT"}}"#,
    ] {
        let last = rule("inet", "filter", "forward", &format!("{COUNTER},{refusal}"));
        assert_eq!(found(&[forward.clone(), last.clone()]).len(), 1);
        let later = rule("inet", "filter", "forward", COUNTER);
        assert!(
            found(&[forward.clone(), last, later]).is_empty(),
            "not last"
        );
    }
    let limited = format!("{FROM_US},{}", r#"{"drop":null}"#);
    let some = rule("inet", "filter", "forward", &limited);
    assert!(found(&[forward, some]).is_empty(), "not everything");
}

#[test]
fn who_has_followed_the_advice_is_not_told_again() {
    let accept = format!(r#"{FROM_US},{COUNTER},{{"accept":null}}"#);
    let jump = r#"{"jump":{"target":"DOCKER-USER"}}"#;
    let forward = hooked("ip", "filter", "FORWARD", "forward", "drop");
    let by_docker = [
        forward.clone(),
        rule("ip", "filter", "FORWARD", jump),
        rule("ip", "filter", "DOCKER-USER", &accept),
    ];
    assert!(found(&by_docker).is_empty());
    // The rule of another chain says nothing about this one.
    let elsewhere = [forward.clone(), rule("ip", "filter", "INPUT", &accept)];
    assert_eq!(found(&elsewhere).len(), 1);
    let dropped = format!(r#"{FROM_US},{{"drop":null}}"#);
    assert_eq!(
        found(&[forward, rule("ip", "filter", "FORWARD", &dropped)]).len(),
        1
    );
    let by_map =
        r#"{"vmap":{"key":{"meta":{"key":"iifname"}},"data":{"set":[["sb*",{"accept":null}]]}}}"#;
    let native = hooked("inet", "filter", "forward", "forward", "drop");
    assert!(found(&[native, rule("inet", "filter", "forward", by_map)]).is_empty());
}

fn found_old(listing: &str) -> Vec<String> {
    judge(
        &Table::read_iptables(listing, "sb00aa"),
        Some("iptables-legacy"),
        &ours(),
    )
}

#[test]
fn the_older_iptables_is_read_too() {
    let docker = "-P INPUT ACCEPT\n-P FORWARD DROP\n-N DOCKER-USER\n-A FORWARD -j DOCKER-USER\n";
    assert_advises(
        &found_old(docker),
        &["iptables-legacy -I DOCKER-USER -i sb00aa+ -j ACCEPT"],
    );
    let followed = format!("{docker}-A DOCKER-USER -i sb00aa+ -j ACCEPT\n");
    assert!(found_old(&followed).is_empty());
    let but_them = format!("{docker}-A DOCKER-USER ! -i sb00aa+ -j ACCEPT\n");
    assert_eq!(found_old(&but_them).len(), 1);
    assert!(found_old("-P FORWARD ACCEPT\n").is_empty());
    let rejecting =
        "-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j REJECT --reject-with x\n";
    assert_eq!(found_old(rejecting).len(), 1);
}

#[test]
fn harmless_chains_and_nonsense_are_silent() {
    for harmless in [
        hooked("ip", "filter", "FORWARD", "forward", "accept"),
        hooked("ip6", "filter", "FORWARD", "forward", "drop"),
        hooked("bridge", "filter", "forward", "forward", "drop"),
        hooked("arp", "filter", "input", "input", "drop"),
        hooked("ip", "nat", "postrouting", "postrouting", "drop"),
        chain("ip", "filter", "DOCKER"),
    ] {
        assert!(
            found(std::slice::from_ref(&harmless)).is_empty(),
            "{harmless}"
        );
    }
    assert!(Table::read_nft(b"not json", "sb00aa").is_empty());
}
