//! Other people's rules that would stop sandboxes. A packet must pass every table, so ours cannot
//! overrule them: we can only tell the operator, with the command that helps.

use serde::Deserialize;

use super::run;
use crate::names::Names;

/// What `nft -j list chains` says about a chain that is hooked into the kernel.
#[derive(Debug, Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    chain: Option<Chain>,
}

/// Chains of others that drop by default what is forwarded, or what reaches the host.
pub(crate) async fn warnings(names: &Names) -> Vec<String> {
    let mut warnings = match run("nft", &["-j", "list", "chains"], &[]).await {
        Ok(output) => read(&output.stdout, names),
        Err(error) => {
            tracing::debug!(%error, "other firewall rules cannot be listed");
            Vec::new()
        }
    };
    warnings.extend(old_iptables(names).await);
    warnings
}

/// Rules of the older iptables are in a place of their own, which `nft` does not show.
async fn old_iptables(names: &Names) -> Option<String> {
    let tables = tokio::fs::read_to_string("/proc/net/ip_tables_names")
        .await
        .ok()?;
    tables.lines().find(|table| *table == "filter")?;
    let listing = run("iptables-legacy", &["-w", "2", "-S"], &[]).await.ok()?;
    read_old(&String::from_utf8_lossy(&listing.stdout), names)
}

fn read_old(listing: &str, names: &Names) -> Option<String> {
    listing.lines().find(|line| *line == "-P FORWARD DROP")?;
    let docker = listing.lines().any(|line| line == "-N DOCKER-USER");
    Some(describe(
        "ip filter FORWARD",
        "iptables-legacy",
        docker,
        names,
    ))
}

fn read(json: &[u8], names: &Names) -> Vec<String> {
    let Ok(listing) = serde_json::from_slice::<Listing>(json) else {
        return Vec::new();
    };
    let chains: Vec<Chain> = listing
        .nftables
        .into_iter()
        .filter_map(|item| item.chain)
        .collect();
    let docker = chains.iter().any(|chain| chain.name == "DOCKER-USER");
    let dropping = chains.iter().filter(|chain| {
        chain.table != names.table()
            && chain.family != "ip6"
            && chain.policy.as_deref() == Some("drop")
    });
    dropping
        .filter_map(
            |Chain {
                 family,
                 table,
                 name,
                 hook,
                 ..
             }| {
                let chain = format!("{family} {table} {name}");
                match hook.as_deref() {
                    Some("forward") => Some(describe(&chain, "iptables", docker, names)),
                    Some("input") => Some(describe_input(&chain, names)),
                    _ => None,
                }
            },
        )
        .collect()
}

fn describe(chain: &str, iptables: &str, docker: bool, names: &Names) -> String {
    let (user, cables) = (
        if docker { "DOCKER-USER" } else { "FORWARD" },
        names.slot_prefix(),
    );
    format!(
        "the firewall chain `{chain}` drops forwarded packets by default (Docker sets this): \
         sandboxes have no internet until you run `{iptables} -I {user} -i {cables}+ -j ACCEPT` \
         and `{iptables} -I {user} -o {cables}+ -m conntrack --ctstate ESTABLISHED,RELATED -j \
         ACCEPT`"
    )
}

fn describe_input(chain: &str, names: &Names) -> String {
    format!(
        "the firewall chain `{chain}` drops by default what reaches this host: if sandboxes cannot \
         resolve names, allow port 53 from the links {}*",
        names.slot_prefix()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(family: &str, table: &str, hook: &str, policy: &str) -> String {
        format!(
            r#"{{"chain":{{"family":"{family}","table":"{table}","name":"FORWARD","handle":1,
            "type":"filter","hook":"{hook}","prio":0,"policy":"{policy}"}}}}"#
        )
    }

    fn found(chains: &[String]) -> Vec<String> {
        let json = format!(
            r#"{{"nftables":[{{"metainfo":{{"version":"1.0.6"}}}},{}]}}"#,
            chains.join(",")
        );
        read(json.as_bytes(), &Names::new("00aa").unwrap())
    }

    #[test]
    fn a_forward_policy_of_drop_is_told_with_the_command_that_helps() {
        let warnings = found(&[
            chain("ip", "filter", "forward", "drop"),
            r#"{"chain":{"family":"ip","table":"filter","name":"DOCKER-USER","handle":9}}"#.into(),
        ]);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("iptables -I DOCKER-USER -i sb00aa+ -j ACCEPT"));
    }

    #[test]
    fn the_older_iptables_is_read_too() {
        let names = Names::new("00aa").unwrap();
        let docker = "-P INPUT ACCEPT\n-P FORWARD DROP\n-N DOCKER-USER\n";
        assert!(
            read_old(docker, &names)
                .unwrap()
                .contains("iptables-legacy -I DOCKER-USER")
        );
        assert_eq!(read_old("-P FORWARD ACCEPT\n", &names), None);
    }

    #[test]
    fn harmless_chains_our_own_and_nonsense_are_silent() {
        assert!(found(&[chain("ip", "filter", "forward", "accept")]).is_empty());
        assert!(found(&[chain("ip6", "filter", "forward", "drop")]).is_empty());
        assert!(found(&[chain("inet", "soulbox_00aa", "forward", "drop")]).is_empty());
        assert!(found(&[chain("ip", "nat", "postrouting", "drop")]).is_empty());
        assert!(read(b"not json", &Names::new("00aa").unwrap()).is_empty());
    }
}
