//! Other people's rules that would stop sandboxes. A packet must pass every table, so ours cannot
//! overrule them: we can only warn the operator, with the commands that help, in the words of the
//! program that made the rules. Each command was tried (`tests/network/firewalls.rs`; those of ufw
//! and firewalld by hand).

mod tables;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use tables::{Chain, Hook, Table};

use super::{find, run};
use crate::names::Names;

/// What advice must name.
#[derive(Debug)]
struct OwnRules {
    table: String,
    /// What the names of our links start with.
    links: String,
    gateway: Ipv4Addr,
}

/// Whose rules they are, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleOwner {
    Firewalld,
    Ufw,
    /// With this program, and whether Docker's chain for other people's rules is there.
    Iptables {
        program: &'static str,
        docker: bool,
    },
    Nft,
}

/// Chains of others that turn away what is forwarded, or what reaches the host, and have no rule
/// for our links: those who have followed the advice are not warned again.
pub(crate) async fn warnings(names: &Names, gateway: Ipv4Addr) -> Vec<String> {
    let ours = OwnRules {
        table: names.table(),
        links: names.slot_prefix(),
        gateway,
    };
    let mut warnings = Vec::new();
    let iptables = iptables_of_nft().await;
    for table in nft_tables(&ours).await {
        warnings.extend(judge(&table, iptables, &ours));
    }
    if let Some(table) = old_table(&ours).await {
        warnings.extend(judge(&table, Some("iptables-legacy"), &ours));
    }
    // What helps may be the same for two chains.
    warnings.dedup();
    warnings
}

/// Tables with a chain in our way, with their rules.
async fn nft_tables(ours: &OwnRules) -> Vec<Table> {
    let chains = match run("nft", &["-j", "list", "chains"], &[]).await {
        Ok(output) => Table::read_nft(&output.stdout, &ours.links),
        Err(error) => {
            tracing::debug!(%error, "other firewall rules cannot be listed");
            return Vec::new();
        }
    };
    let mut tables = Vec::new();
    for table in chains {
        if table.name == ours.table || !table.chains.iter().any(Chain::is_in_our_way) {
            continue;
        }
        let list = ["-j", "list", "table", &table.family, &table.name];
        let read = run("nft", &list, &[]).await;
        let with_rules = read
            .ok()
            .and_then(|output| Table::read_nft(&output.stdout, &ours.links).pop());
        // Without its rules, its chains' policies still say something.
        tables.push(with_rules.unwrap_or(table));
    }
    tables
}

/// Rules of the older iptables are in a place of their own, which `nft` does not show.
async fn old_table(ours: &OwnRules) -> Option<Table> {
    let tables = tokio::fs::read_to_string("/proc/net/ip_tables_names")
        .await
        .ok()?;
    tables.lines().find(|table| *table == "filter")?;
    let listing = run("iptables-legacy", &["-w", "2", "-S"], &[]).await.ok()?;
    let listing = String::from_utf8_lossy(&listing.stdout);
    Some(Table::read_iptables(&listing, &ours.links))
}

/// The iptables that writes into nftables. Where the older one has the plain name, that would
/// write into a table in which nothing is refused.
async fn iptables_of_nft() -> Option<&'static str> {
    let version = run("iptables", &["--version"], &[]).await.ok();
    let is_it = version.is_some_and(|it| String::from_utf8_lossy(&it.stdout).contains("nf_tables"));
    if is_it {
        Some("iptables")
    } else {
        find("iptables-nft").map(|_| "iptables-nft")
    }
}

fn judge(table: &Table, iptables: Option<&'static str>, ours: &OwnRules) -> Vec<String> {
    let in_the_way = table.chains.iter().filter(|chain| {
        chain.is_in_our_way() && table.refuses(chain) && !table.accepts_our_links(chain)
    });
    let owner = owner(table, iptables);
    let mut warnings: Vec<String> = in_the_way
        .filter_map(|chain| describe(table, chain, owner, ours))
        .collect();
    warnings.dedup();
    warnings
}

fn owner(table: &Table, iptables: Option<&'static str>) -> RuleOwner {
    // The second is how it looks where firewalld uses iptables.
    if table.name == "firewalld" || table.has_chain("INPUT_ZONES") {
        return RuleOwner::Firewalld;
    }
    if (table.family.as_str(), table.name.as_str()) != ("ip", "filter") {
        return RuleOwner::Nft;
    }
    if table.has_chain("ufw-user-forward") {
        return RuleOwner::Ufw;
    }
    let built_in = table.has_chain("FORWARD") || table.has_chain("INPUT");
    match iptables {
        Some(program) if built_in => RuleOwner::Iptables {
            program,
            docker: table.has_chain("DOCKER-USER"),
        },
        _ => RuleOwner::Nft,
    }
}

fn describe(table: &Table, chain: &Chain, owner: RuleOwner, ours: &OwnRules) -> Option<String> {
    let OwnRules { links, .. } = ours;
    if owner == RuleOwner::Firewalld {
        return Some(format!(
            "firewalld refuses what it does not know, and does not know the links {links}*: for \
             internet and names in sandboxes run {}. SoulBox's own rules go on guarding this host",
            listed(&advice(table, chain, owner, ours)?)
        ));
    }
    let (what, purpose) = match chain.hook? {
        Hook::Forward => ("what is forwarded", "internet"),
        Hook::Input => ("what reaches this host", "names"),
        Hook::Other => return None,
    };
    let keep = match owner {
        RuleOwner::Ufw | RuleOwner::Firewalld => "",
        RuleOwner::Nft | RuleOwner::Iptables { .. } => {
            ". This lasts until that firewall is loaded again: keep the rules where its others are"
        }
    };
    Some(format!(
        "the firewall chain `{} {} {}` refuses {what} unless a rule allows it, and has none for the \
         links {links}*: for {purpose} in sandboxes run {}{keep}",
        table.family,
        table.name,
        chain.name,
        listed(&advice(table, chain, owner, ours)?)
    ))
}

fn listed(commands: &[String]) -> String {
    let quoted: Vec<String> = commands.iter().map(|each| format!("`{each}`")).collect();
    quoted.join(" and ")
}

/// What sandboxes send to this host: questions for names, and connections of those whose rules have
/// names.
const ARRIVING: [(&str, u16); 4] = [("udp", 53), ("tcp", 53), ("tcp", 80), ("tcp", 443)];

/// The commands that help. All of it is recognised by the port that the sandbox used: it arrives on
/// another one, which may be a different one after each start.
fn advice(table: &Table, chain: &Chain, owner: RuleOwner, ours: &OwnRules) -> Option<Vec<String>> {
    let OwnRules { links, gateway, .. } = ours;
    let forward = chain.hook? == Hook::Forward;
    let commands = match owner {
        RuleOwner::Firewalld => vec![
            format!("firewall-cmd --permanent --zone=trusted --add-interface={links}+"),
            "firewall-cmd --reload".to_owned(),
        ],
        // It lets answers in by itself.
        RuleOwner::Ufw if forward => vec![format!("ufw route allow in on {links}+")],
        RuleOwner::Ufw => vec![format!("ufw allow in on {links}+ to {gateway}")],
        RuleOwner::Iptables { program, docker } if forward => {
            let chain = if docker { "DOCKER-USER" } else { &chain.name };
            let insert = format!("{program} -I {chain}");
            vec![
                format!("{insert} -i {links}+ -j ACCEPT"),
                format!(
                    "{insert} -o {links}+ -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
                ),
            ]
        }
        RuleOwner::Iptables { program, .. } => ARRIVING
            .map(|(protocol, port)| {
                format!(
                    "{program} -I {} -i {links}+ -p {protocol} -m conntrack --ctorigdstport {port} \
                     -j ACCEPT",
                    chain.name
                )
            })
            .into(),
        RuleOwner::Nft => {
            let insert = format!(
                "nft insert rule {} {} {}",
                table.family, table.name, chain.name
            );
            if forward {
                vec![
                    format!("{insert} iifname \"{links}*\" accept"),
                    format!("{insert} oifname \"{links}*\" ct state established,related accept"),
                ]
            } else {
                let rule = |(protocol, port)| {
                    format!(
                        "{insert} iifname \"{links}*\" meta l4proto {protocol} ct original \
                         proto-dst {port} accept"
                    )
                };
                ARRIVING.map(rule).into()
            }
        }
    };
    Some(commands)
}
