//! What one sandbox may reach, beyond what holds for all.
//!
//! The kernel's sets refuse elements that overlap, and people write lists that do. So the rules of
//! a sandbox are cut into blocks that do not: whole addresses, and addresses with ports.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use soulbox_types::DomainPattern;

use crate::link::Access;
use crate::{Error, Ipv4Net};

const MOST_RULES: usize = 128;
/// Overlapping rules with ports may need more blocks than there are rules.
const MOST_BLOCKS: usize = 1024;
const EVERYWHERE: Ipv4Net = Ipv4Net::literal(0, 0, 0, 0, 0);

/// `allow` wins over `deny`, and both over `internet`. What is closed for all sandboxes (private
/// ranges, the host, other sandboxes) stays closed whatever this says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressPolicy {
    /// What holds for destinations that no rule names.
    pub internet: bool,
    pub allow: Vec<EgressRule>,
    /// Hosts by name, on ports 80 and 443. They count only where everything else is denied.
    pub allow_names: Vec<DomainPattern>,
    pub deny: Vec<EgressRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    pub range: Ipv4Net,
    /// `None`: all of them, and protocols that have none.
    pub ports: Option<RangeInclusive<u16>>,
}

impl From<Ipv4Net> for EgressRule {
    fn from(range: Ipv4Net) -> Self {
        Self { range, ports: None }
    }
}

impl EgressPolicy {
    pub fn open() -> Self {
        Self {
            internet: true,
            allow: Vec::new(),
            allow_names: Vec::new(),
            deny: Vec::new(),
        }
    }

    pub fn closed() -> Self {
        Self {
            internet: false,
            ..Self::open()
        }
    }

    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let rules = self.allow.len() + self.allow_names.len() + self.deny.len();
        if rules > MOST_RULES {
            return Err(Error::PolicyTooLarge {
                rules,
                max: MOST_RULES,
            });
        }
        if self.internet && self.deny.is_empty() {
            return Ok(Plan::Plain(Access::Open));
        }
        if !self.internet && self.allow.is_empty() && self.allow_names.is_empty() {
            return Ok(Plan::Plain(Access::Closed));
        }
        let everything = [EVERYWHERE.into()];
        let deny = if self.internet {
            self.deny.as_slice()
        } else {
            &everything
        };
        let mut blocks = Blocks {
            names: None,
            allow_hosts: hosts(&self.allow),
            allow_ports: ports(&self.allow),
            deny_hosts: hosts(deny),
            deny_ports: ports(deny),
        };
        if !self.allow_names.is_empty() && !blocks.opens_names() {
            blocks.names = Some(self.allow_names.as_slice().into());
        }
        if blocks.len() > MOST_BLOCKS {
            return Err(Error::PolicyTooLarge {
                rules,
                max: MOST_RULES,
            });
        }
        Ok(Plan::Ruled(blocks))
    }
}

/// How a policy is carried out: by the link's group alone, or by the firewall's sets as well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Plain(Access),
    Ruled(Blocks),
}

/// Sorted, and without overlaps within each list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Where some names are all that is open beside `allow_hosts` and `allow_ports`.
    pub(crate) names: Option<Arc<[DomainPattern]>>,
    pub(crate) allow_hosts: BTreeSet<Block>,
    pub(crate) allow_ports: BTreeSet<Block>,
    pub(crate) deny_hosts: BTreeSet<Block>,
    pub(crate) deny_ports: BTreeSet<Block>,
}

/// First and last address, and first and last port in the lists that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) ports: Option<(u16, u16)>,
}

impl Blocks {
    fn len(&self) -> usize {
        let lists = [
            &self.allow_hosts,
            &self.allow_ports,
            &self.deny_hosts,
            &self.deny_ports,
        ];
        lists.into_iter().map(BTreeSet::len).sum()
    }

    /// Whether the name server may be asked. It answers for some names only, if there are some.
    pub(crate) fn may_ask(&self) -> bool {
        self.names.is_some() || self.opens_names()
    }

    /// Names are a way out too: they go where nothing else may only if something else may.
    fn opens_names(&self) -> bool {
        let everything = Block {
            from: Ipv4Addr::UNSPECIFIED,
            to: Ipv4Addr::BROADCAST,
            ports: None,
        };
        !self.deny_hosts.contains(&everything) || self.allow_hosts.contains(&everything)
    }
}

fn hosts(rules: &[EgressRule]) -> BTreeSet<Block> {
    let whole = rules.iter().filter(|rule| rule.ports.is_none());
    let ranges = merged(whole.map(|rule| ends(rule.range)).collect());
    ranges
        .into_iter()
        .map(|(from, to)| block(from, to, None))
        .collect()
}

/// Cuts the addresses at every end of a rule; within a range, the same ports hold for all.
fn ports(rules: &[EgressRule]) -> BTreeSet<Block> {
    let rules: Vec<((u64, u64), (u64, u64))> = rules
        .iter()
        .filter_map(|rule| {
            let ports = rule.ports.as_ref()?;
            let ports = (u64::from(*ports.start()), u64::from(*ports.end()));
            (ports.0 <= ports.1).then(|| (ends(rule.range), ports))
        })
        .collect();
    let cuts: BTreeSet<u64> = rules
        .iter()
        .flat_map(|((from, to), _)| [*from, to + 1])
        .collect();
    let cuts: Vec<u64> = cuts.into_iter().collect();
    let mut blocks = BTreeSet::new();
    for range in cuts.windows(2) {
        let &[from, end] = range else { continue };
        let here = rules
            .iter()
            .filter(|((first, last), _)| *first <= from && from <= *last);
        for (low, high) in merged(here.map(|(_, ports)| *ports).collect()) {
            // Both come from 16 bits, and merging makes nothing larger.
            let port = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
            blocks.insert(block(from, end - 1, Some((port(low), port(high)))));
        }
    }
    blocks
}

/// Ranges that touch or overlap become one.
fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut result: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match result.last_mut() {
            Some((_, end)) if from <= *end + 1 => *end = (*end).max(to),
            _ => result.push((from, to)),
        }
    }
    result
}

fn ends(range: Ipv4Net) -> (u64, u64) {
    let first = u64::from(u32::from(range.address()));
    (first, first + range.size() - 1)
}

fn block(from: u64, to: u64, ports: Option<(u16, u16)>) -> Block {
    let address = |value: u64| Ipv4Addr::from(u32::try_from(value).unwrap_or(u32::MAX));
    Block {
        from: address(from),
        to: address(to),
        ports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> EgressRule {
        let (range, ports) = text.split_once(' ').map_or((text, None), |(range, ports)| {
            let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
            (range, Some(low.parse().unwrap()..=high.parse().unwrap()))
        });
        EgressRule {
            range: range.parse().unwrap(),
            ports,
        }
    }

    fn rules(texts: &[&str]) -> Vec<EgressRule> {
        texts.iter().map(|text| rule(text)).collect()
    }

    fn shown(blocks: &BTreeSet<Block>) -> Vec<String> {
        let show = |block: &Block| match block.ports {
            Some((low, high)) => format!("{}-{} {low}-{high}", block.from, block.to),
            None => format!("{}-{}", block.from, block.to),
        };
        blocks.iter().map(show).collect()
    }

    #[test]
    fn whole_addresses_that_overlap_or_touch_become_one_block() {
        let blocks = hosts(&rules(&["1.0.0.0/9", "1.1.1.1", "1.128.0.0/9", "9.9.9.9"]));
        assert_eq!(shown(&blocks), ["1.0.0.0-1.255.255.255", "9.9.9.9-9.9.9.9"]);
        assert_eq!(
            shown(&hosts(&rules(&["0.0.0.0/0", "255.255.255.255"]))),
            ["0.0.0.0-255.255.255.255"]
        );
    }

    #[test]
    fn ports_of_overlapping_ranges_are_cut_into_blocks_that_do_not_overlap() {
        let blocks = ports(&rules(&[
            "1.0.0.0/24 80",
            "1.0.0.7 443",
            "1.0.0.7 79-81",
            "2.0.0.0/8",
        ]));
        assert_eq!(
            shown(&blocks),
            [
                "1.0.0.0-1.0.0.6 80-80",
                "1.0.0.7-1.0.0.7 79-81",
                "1.0.0.7-1.0.0.7 443-443",
                "1.0.0.8-1.0.0.255 80-80",
            ]
        );
    }

    #[test]
    fn policies_without_effect_need_no_sets() {
        let plan = |internet, allow: &[&str], deny: &[&str]| {
            let policy = EgressPolicy {
                internet,
                allow: rules(allow),
                allow_names: Vec::new(),
                deny: rules(deny),
            };
            policy.plan().unwrap()
        };
        assert_eq!(plan(true, &["1.1.1.1"], &[]), Plan::Plain(Access::Open));
        assert_eq!(plan(false, &[], &["1.1.1.1"]), Plan::Plain(Access::Closed));
        let Plan::Ruled(blocks) = plan(false, &["1.1.1.1"], &["2.2.2.2"]) else {
            panic!("allowing one address needs the sets")
        };
        assert_eq!(shown(&blocks.deny_hosts), ["0.0.0.0-255.255.255.255"]);
        assert!(!blocks.may_ask());
        let Plan::Ruled(blocks) = plan(true, &[], &["2.2.2.2"]) else {
            panic!("denying one address needs the sets")
        };
        assert!(blocks.may_ask());
    }

    #[test]
    fn names_count_only_where_everything_else_is_denied() {
        let named = |internet, allow: &[&str], deny: &[&str]| {
            let policy = EgressPolicy {
                internet,
                allow: rules(allow),
                allow_names: vec!["example.com".parse().unwrap()],
                deny: rules(deny),
            };
            match policy.plan().unwrap() {
                Plan::Plain(access) => Err(access),
                Plan::Ruled(blocks) => Ok((blocks.names.is_some(), blocks.may_ask())),
            }
        };
        assert_eq!(named(true, &[], &["0.0.0.0/0"]), Ok((true, true)));
        assert_eq!(named(false, &[], &[]), Ok((true, true)));
        assert_eq!(named(false, &["1.1.1.1"], &[]), Ok((true, true)));
        assert_eq!(
            named(true, &["0.0.0.0/0"], &["0.0.0.0/0"]),
            Ok((false, true))
        );
        assert_eq!(named(true, &[], &["1.1.1.1"]), Ok((false, true)));
        assert_eq!(named(true, &[], &[]), Err(Access::Open));
    }

    #[test]
    fn too_many_rules_are_refused() {
        let mut policy = EgressPolicy::open();
        policy.deny = vec![rule("9.9.9.9"); MOST_RULES];
        assert!(policy.plan().is_ok());
        policy.allow.push(rule("9.9.9.8"));
        assert!(matches!(policy.plan(), Err(Error::PolicyTooLarge { .. })));
        // Few rules, many blocks.
        policy.allow.clear();
        let pair = |n: u8| {
            let port = u16::from(n) * 10 + 1;
            let inner = EgressRule {
                range: Ipv4Net::literal(9, 9, 9, n * 4, 32),
                ports: Some(1..=1),
            };
            let outer = EgressRule {
                range: Ipv4Net::literal(9, 9, 9, 0, 24),
                ports: Some(port..=port),
            };
            [inner, outer]
        };
        policy.deny = (0..60).flat_map(pair).collect();
        assert!(matches!(policy.plan(), Err(Error::PolicyTooLarge { .. })));
    }
}
