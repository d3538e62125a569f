//! Other people's tables, as far as they can matter to us: which chains are hooked into the way of
//! a packet, what becomes of those that no rule decides about, and which rules name our links.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Hook {
    Input,
    Forward,
    #[serde(other)]
    Other,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) family: String,
    pub(super) name: String,
    pub(super) chains: Vec<Chain>,
    pub(super) rules: Vec<Rule>,
}

/// As `nft -j` writes it.
#[derive(Debug, Deserialize)]
pub(super) struct Chain {
    family: String,
    table: String,
    pub(super) name: String,
    pub(super) hook: Option<Hook>,
    #[serde(rename = "type")]
    kind: Option<String>,
    policy: Option<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    chain: String,
    /// Chains that it sends packets to.
    targets: Vec<String>,
    /// Names our links as where packets come from, and does not turn them away.
    accepts_our_links: bool,
    /// Drops everything that reaches it.
    refuses_all: bool,
}

#[derive(Debug, Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    chain: Option<Chain>,
    rule: Option<NftRule>,
}

#[derive(Debug, Deserialize)]
struct NftRule {
    family: String,
    table: String,
    chain: String,
    #[serde(default)]
    expr: Vec<Value>,
}

impl Chain {
    /// Packets of sandboxes are IPv4 and routed: what filters bridges, ARP or IPv6 sees none.
    pub(super) fn is_in_our_way(&self) -> bool {
        matches!(self.hook, Some(Hook::Input | Hook::Forward))
            && matches!(self.family.as_str(), "ip" | "inet")
            && self.kind.as_deref().is_none_or(|kind| kind == "filter")
    }

    pub(super) fn drops_by_default(&self) -> bool {
        self.policy.as_deref() == Some("drop")
    }
}

impl Table {
    /// From what `nft -j` lists, with rules or without.
    pub(super) fn read_nft(json: &[u8], links: &str) -> Vec<Self> {
        let Ok(listing) = serde_json::from_slice::<Listing>(json) else {
            return Vec::new();
        };
        let mut tables: Vec<Self> = Vec::new();
        for item in listing.nftables {
            if let Some(chain) = item.chain {
                let table = Self::of(&mut tables, &chain.family, &chain.table);
                table.chains.push(chain);
            } else if let Some(rule) = item.rule {
                let table = Self::of(&mut tables, &rule.family, &rule.table);
                table.rules.push(Rule::read_nft(rule, links));
            }
        }
        tables
    }

    fn of<'a>(tables: &'a mut Vec<Self>, family: &str, name: &str) -> &'a mut Self {
        let known = tables
            .iter()
            .position(|table| table.family == family && table.name == name);
        let index = known.unwrap_or_else(|| {
            tables.push(Self::new(family, name));
            tables.len() - 1
        });
        &mut tables[index]
    }

    fn new(family: &str, name: &str) -> Self {
        Self {
            family: family.to_owned(),
            name: name.to_owned(),
            chains: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// From what `iptables -S` lists.
    pub(super) fn read_iptables(listing: &str, links: &str) -> Self {
        let mut table = Self::new("ip", "filter");
        for line in listing.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["-P", name, policy] => table.add_chain(name, Some(policy)),
                ["-N", name] => table.add_chain(name, None),
                ["-A", chain, ref rest @ ..] => {
                    table.rules.push(Rule::read_iptables(chain, rest, links));
                }
                _ => {}
            }
        }
        table
    }

    fn add_chain(&mut self, name: &str, policy: Option<&str>) {
        let hook = match name {
            "INPUT" => Hook::Input,
            "FORWARD" => Hook::Forward,
            _ => Hook::Other,
        };
        self.chains.push(Chain {
            family: self.family.clone(),
            table: self.name.clone(),
            name: name.to_owned(),
            hook: Some(hook),
            kind: None,
            policy: policy.map(str::to_lowercase),
        });
    }

    pub(super) fn has_chain(&self, name: &str) -> bool {
        self.chains.iter().any(|chain| chain.name == name)
    }

    /// Whether packets that no rule of this chain lets through are turned away, by its policy or by
    /// its last rule.
    pub(super) fn refuses(&self, chain: &Chain) -> bool {
        let last = self.rules.iter().rfind(|rule| rule.chain == chain.name);
        chain.drops_by_default() || last.is_some_and(|rule| rule.refuses_all)
    }

    /// Whether somebody has thought of us: a rule that is reached from this chain lets packets in
    /// that come from our links.
    pub(super) fn accepts_our_links(&self, chain: &Chain) -> bool {
        let mut reached = vec![chain.name.as_str()];
        let mut next = 0;
        while let Some(&name) = reached.get(next) {
            next += 1;
            for rule in self.rules.iter().filter(|rule| rule.chain == name) {
                if rule.accepts_our_links {
                    return true;
                }
                for target in &rule.targets {
                    if !reached.contains(&target.as_str()) {
                        reached.push(target);
                    }
                }
            }
        }
        false
    }
}

impl Rule {
    fn read_nft(rule: NftRule, links: &str) -> Self {
        let mut targets = Vec::new();
        for part in &rule.expr {
            collect_targets(part, &mut targets);
        }
        let drops = rule.expr.iter().any(drops);
        let counts_only =
            |part: &&Value| part.get("counter").is_some() || part.get("log").is_some();
        let decides = rule.expr.iter().filter(|part| !counts_only(part)).count();
        Self {
            chain: rule.chain,
            targets,
            accepts_our_links: !drops && rule.expr.iter().any(|part| is_about(part, links)),
            refuses_all: drops && decides == 1,
        }
    }

    fn read_iptables(chain: &str, words: &[&str], links: &str) -> Self {
        let value = |option: &str| {
            let mut pairs = words.windows(2);
            pairs.find_map(|pair| (pair[0] == option).then_some(pair[1]))
        };
        let target = value("-j").or_else(|| value("-g"));
        let drops = matches!(target, Some("DROP" | "REJECT"));
        let link = value("-i").filter(|_| !words.windows(2).any(|pair| pair == ["!", "-i"]));
        Self {
            chain: chain.to_owned(),
            targets: target.map(str::to_owned).into_iter().collect(),
            accepts_our_links: !drops && link.is_some_and(|link| covers(link, '+', links)),
            refuses_all: drops && words.first() == Some(&"-j"),
        }
    }
}

/// `links` is what our links' names start with. Whoever wrote the rule may have meant all of them,
/// more than them, or one.
fn covers(pattern: &str, wildcard: char, links: &str) -> bool {
    let more = |prefix: &str| links.starts_with(prefix);
    pattern.strip_suffix(wildcard).is_some_and(more) || pattern.starts_with(links)
}

/// Rules of iptables that `nft` has no words for are shown as `xt`, with their name.
fn drops(part: &Value) -> bool {
    let old = |name| part.pointer("/xt/name").and_then(Value::as_str) == Some(name);
    part.get("drop").is_some() || part.get("reject").is_some() || old("REJECT") || old("DROP")
}

/// A comparison of, or a map by, the link that a packet came from, in which ours is named.
fn is_about(part: &Value, links: &str) -> bool {
    let incoming =
        |value: Option<&Value>| value.is_some_and(|value| has_string(value, &|s| s == "iifname"));
    let ours = |value: Option<&Value>| {
        value.is_some_and(|value| has_string(value, &|s| covers(s, '*', links)))
    };
    if let Some(compared) = part.get("match") {
        let same = compared.get("op").and_then(Value::as_str) != Some("!=");
        return same && incoming(compared.get("left")) && ours(compared.get("right"));
    }
    part.get("vmap")
        .is_some_and(|map| incoming(map.get("key")) && ours(map.get("data")))
}

fn has_string(value: &Value, wanted: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => wanted(text),
        Value::Array(values) => values.iter().any(|value| has_string(value, wanted)),
        Value::Object(fields) => fields.values().any(|value| has_string(value, wanted)),
        _ => false,
    }
}

fn collect_targets(value: &Value, targets: &mut Vec<String>) {
    match value {
        Value::Array(values) => values
            .iter()
            .for_each(|value| collect_targets(value, targets)),
        Value::Object(fields) => {
            for (name, field) in fields {
                let target = field.get("target").and_then(Value::as_str);
                if let ("jump" | "goto", Some(target)) = (name.as_str(), target) {
                    targets.push(target.to_owned());
                } else {
                    collect_targets(field, targets);
                }
            }
        }
        _ => {}
    }
}
