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
    match run(&["-j", "list", "chains"], &[]).await {
        Ok(output) => read(&output.stdout, names),
        Err(error) => {
            tracing::debug!(%error, "other firewall rules cannot be listed");
            Vec::new()
        }
    }
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
    let drops = |chain: &&Chain| {
        let hook = chain.hook.as_deref();
        chain.table != names.table()
            && chain.family != "ip6"
            && chain.policy.as_deref() == Some("drop")
            && (hook == Some("forward") || hook == Some("input"))
    };
    chains
        .iter()
        .filter(drops)
        .map(|chain| describe(chain, docker, names))
        .collect()
}

fn describe(chain: &Chain, docker: bool, names: &Names) -> String {
    let Chain {
        family,
        table,
        name,
        ..
    } = chain;
    let cables = names.slot_prefix();
    if chain.hook.as_deref() == Some("input") {
        return format!(
            "the firewall chain `{family} {table} {name}` drops by default what reaches this host: \
             if sandboxes cannot resolve names, allow port 53 from the links {cables}*"
        );
    }
    let user = if docker { "DOCKER-USER" } else { "FORWARD" };
    format!(
        "the firewall chain `{family} {table} {name}` drops forwarded packets by default (Docker \
         sets this): sandboxes have no internet until you run `iptables -I {user} -i {cables}+ -j \
         ACCEPT` and `iptables -I {user} -o {cables}+ -m conntrack --ctstate ESTABLISHED,RELATED \
         -j ACCEPT`"
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
    fn harmless_chains_our_own_and_nonsense_are_silent() {
        assert!(found(&[chain("ip", "filter", "forward", "accept")]).is_empty());
        assert!(found(&[chain("ip6", "filter", "forward", "drop")]).is_empty());
        assert!(found(&[chain("inet", "soulbox_00aa", "forward", "drop")]).is_empty());
        assert!(found(&[chain("ip", "nat", "postrouting", "drop")]).is_empty());
        assert!(read(b"not json", &Names::new("00aa").unwrap()).is_empty());
    }
}
