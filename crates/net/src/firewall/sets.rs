//! The elements of one sandbox in the table's sets, as commands for `nft`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

use crate::policy::{Block, Blocks};

type List = fn(&Blocks) -> &BTreeSet<Block>;

const LISTS: [(&str, List); 4] = [
    ("allow_hosts", |blocks| &blocks.allow_hosts),
    ("allow_ports", |blocks| &blocks.allow_ports),
    ("deny_hosts", |blocks| &blocks.deny_hosts),
    ("deny_ports", |blocks| &blocks.deny_ports),
];

/// From one policy to the next; empty when nothing changes. Only the difference is sent.
pub(crate) fn change(
    table: &str,
    sandbox: Ipv4Addr,
    old: Option<&Blocks>,
    new: Option<&Blocks>,
) -> String {
    let mut script = String::new();
    for (verb, these, others) in [("delete", old, new), ("add", new, old)] {
        let Some(these) = these else { continue };
        for (set, list) in LISTS {
            let known = others.map(list);
            let elements: Vec<String> = list(these)
                .iter()
                .filter(|block| known.is_none_or(|known| !known.contains(block)))
                .map(|block| element(sandbox, block))
                .collect();
            command(&mut script, verb, table, set, &elements);
        }
        let marks = [
            ("ruled", others.is_none()),
            (
                "named",
                these.may_ask() && !others.is_some_and(Blocks::may_ask),
            ),
            (
                "by_domain",
                these.names.is_some() && others.is_none_or(|others| others.names.is_none()),
            ),
        ];
        for (set, changes) in marks {
            if changes {
                command(&mut script, verb, table, set, &[sandbox.to_string()]);
            }
        }
    }
    script
}

fn command(script: &mut String, verb: &str, table: &str, set: &str, elements: &[String]) {
    if !elements.is_empty() {
        let elements = elements.join(", ");
        // Writing to a string cannot fail.
        writeln!(script, "{verb} element inet {table} {set} {{ {elements} }}").ok();
    }
}

fn element(sandbox: Ipv4Addr, block: &Block) -> String {
    let Block { from, to, ports } = block;
    match ports {
        Some((low, high)) => format!("{sandbox} . {from}-{to} . {low}-{high}"),
        None => format!("{sandbox} . {from}-{to}"),
    }
}
