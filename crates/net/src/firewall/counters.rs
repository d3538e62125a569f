//! What the firewall has counted of the sandboxes' traffic.

use serde_json::Value;

use super::run;
use crate::Error;

/// Since the rules were put in place: they are now and then, and then it begins anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From sandboxes to other machines.
    pub sent: Counted,
    /// From other machines to sandboxes.
    pub received: Counted,
    /// What sandboxes tried and were refused: destinations that they may not reach, too many
    /// connections.
    pub refused: Counted,
    /// Dropped without an answer: forged, unasked for, or too many questions for names.
    pub dropped: Counted,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub packets: u64,
    pub bytes: u64,
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Without what is in the sets: they may be long.
pub(crate) async fn traffic(table: &str) -> Result<Traffic, Error> {
    let output = run("nft", &["-t", "-j", "list", "table", "inet", table], &[]).await?;
    Ok(counted(&String::from_utf8_lossy(&output.stdout)))
}

fn counted(text: &str) -> Traffic {
    let mut traffic = Traffic::default();
    let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    for document in documents.flatten() {
        let parts = document.get("nftables").and_then(Value::as_array);
        let rules = parts
            .into_iter()
            .flatten()
            .filter_map(|part| part.get("rule"));
        for rule in rules {
            let expressions = rule.get("expr").and_then(Value::as_array);
            let find = |name: &str| {
                let mut all = expressions.into_iter().flatten();
                all.find_map(|expression| expression.get(name))
            };
            let Some(counter) = find("counter") else {
                continue;
            };
            let number = |name: &str| counter.get(name).and_then(Value::as_u64).unwrap_or(0);
            let counted = Counted {
                packets: number("packets"),
                bytes: number("bytes"),
            };
            let chain = rule.get("chain").and_then(Value::as_str);
            match (chain, find("accept").is_some(), find("drop").is_some()) {
                (Some("refuse"), ..) => traffic.refused.add(counted),
                (Some("leaving"), true, _) => traffic.sent.add(counted),
                (Some("entering"), true, _) => traffic.received.add(counted),
                (_, _, true) => traffic.dropped.add(counted),
                _ => {}
            }
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_counts_for_what_its_rule_does() {
        let rule = |chain: &str, packets: u64, verdict: &str| {
            format!(
                r#"{{"nftables":[{{"metainfo":{{}}}},{{"chain":{{"name":"{chain}"}}}},{{"rule":{{"chain":"{chain}",
                "expr":[{{"match":{{}}}},{{"counter":{{"packets":{packets},"bytes":{}}}}}{verdict}]}}}}]}}"#,
                packets * 100
            )
        };
        let text = [
            rule("refuse", 1, ""),
            rule("leaving", 2, r#",{"accept":null}"#),
            rule("leaving", 3, r#",{"drop":null}"#),
            rule("entering", 4, r#",{"accept":null}"#),
            rule("entering", 5, r#",{"drop":null}"#),
        ]
        .join("\n");
        let counted = |packets| Counted {
            packets,
            bytes: packets * 100,
        };
        let expected = Traffic {
            sent: counted(2),
            received: counted(4),
            refused: counted(1),
            dropped: counted(8),
        };
        assert_eq!(super::counted(&text), expected);
        assert_eq!(super::counted("not JSON"), Traffic::default());
    }
}
