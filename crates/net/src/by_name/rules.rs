//! Who may use which names. The gate and the name server ask here; whoever changes a policy writes
//! here before the firewall sends the first connection to the gate, and after the last.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::RwLock;
use soulbox_types::DomainPattern;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct DomainRules {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    allowed: HashMap<Ipv4Addr, Arc<[DomainPattern]>>,
    /// Ended with the sandbox. They outlive a change of its list, which is for new connections.
    open: HashMap<Ipv4Addr, CancellationToken>,
}

/// What the name server does with a question of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    PassOn,
    /// The name may be used, and there is nothing of this type to know about it.
    NoRecords,
    Refuse,
}

/// Types of records: only addresses are given out.
const ADDRESSES: [u16; 2] = [1, 28];

impl DomainRules {
    /// `None`: the sandbox has no names of its own; the name server then has no opinion.
    pub(crate) fn set(&self, sandbox: Ipv4Addr, patterns: Option<Arc<[DomainPattern]>>) {
        let mut state = self.state.write();
        match patterns {
            Some(patterns) => state.allowed.insert(sandbox, patterns),
            None => state.allowed.remove(&sandbox),
        };
    }

    pub(crate) fn get(&self, sandbox: Ipv4Addr) -> Option<Arc<[DomainPattern]>> {
        self.state.read().allowed.get(&sandbox).cloned()
    }

    /// Ends its connections. Later ones are as its list says.
    pub(crate) fn cut(&self, sandbox: Ipv4Addr) {
        let token = self.state.write().open.remove(&sandbox);
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// The sandbox is gone.
    pub(crate) fn forget(&self, sandbox: Ipv4Addr) {
        self.set(sandbox, None);
        self.cut(sandbox);
    }

    /// What ends a connection of this sandbox, if it has names at all.
    pub(super) fn open(&self, sandbox: Ipv4Addr) -> Option<CancellationToken> {
        let mut state = self.state.write();
        if !state.allowed.contains_key(&sandbox) {
            return None;
        }
        Some(state.open.entry(sandbox).or_default().clone())
    }

    pub(super) fn allows(&self, sandbox: Ipv4Addr, name: &str) -> bool {
        let patterns = self.get(sandbox);
        patterns.is_some_and(|patterns| patterns.iter().any(|pattern| pattern.matches(name)))
    }

    /// `name` is `None` when it is none that a host can have.
    pub(crate) fn judge(&self, sandbox: Ipv4Addr, name: Option<&str>, kind: u16) -> Question {
        let Some(patterns) = self.get(sandbox) else {
            return Question::PassOn;
        };
        let matches = |name| patterns.iter().any(|pattern| pattern.matches(name));
        if !name.is_some_and(matches) {
            Question::Refuse
        } else if ADDRESSES.contains(&kind) {
            Question::PassOn
        } else {
            Question::NoRecords
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

    fn patterns(texts: &[&str]) -> Arc<[DomainPattern]> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn each_sandbox_has_its_own_names_and_without_any_none() {
        let rules = DomainRules::default();
        rules.set(ONE, Some(patterns(&["a.com", "*.b.com"])));
        rules.set(OTHER, Some(patterns(&["c.com"])));
        assert!(rules.allows(ONE, "a.com") && rules.allows(ONE, "x.b.com"));
        assert!(!rules.allows(ONE, "c.com") && rules.allows(OTHER, "c.com"));
        rules.set(ONE, None);
        assert!(!rules.allows(ONE, "a.com"));
        assert!(rules.open(ONE).is_none());
    }

    #[test]
    fn only_addresses_of_listed_names_are_given_out() {
        let rules = DomainRules::default();
        rules.set(ONE, Some(patterns(&["a.com"])));
        for (name, kind, expected) in [
            (Some("a.com"), 1, Question::PassOn),
            (Some("a.com"), 28, Question::PassOn),
            (Some("a.com"), 65, Question::NoRecords),
            (Some("a.com"), 16, Question::NoRecords),
            (Some("x.a.com"), 1, Question::Refuse),
            (None, 1, Question::Refuse),
        ] {
            assert_eq!(rules.judge(ONE, name, kind), expected, "{name:?} {kind}");
        }
        assert_eq!(rules.judge(OTHER, Some("a.com"), 16), Question::PassOn);
    }

    #[test]
    fn connections_stay_when_the_list_changes_and_end_with_the_sandbox() {
        let rules = DomainRules::default();
        rules.set(ONE, Some(patterns(&["a.com"])));
        let open = rules.open(ONE).unwrap();
        rules.set(ONE, Some(patterns(&["b.com"])));
        rules.set(ONE, None);
        assert!(!open.is_cancelled());
        rules.forget(ONE);
        assert!(open.is_cancelled());
    }
}
