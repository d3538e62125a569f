//! What `seccomp.json` says about each system call.
//!
//! The file holds several filters, as if they were loaded into the kernel one after the other: of
//! those that object, the last one has the word. Here they become one decision for each call.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::numbers::number_of;

/// The filters in the order in which they would be loaded.
const FILTERS: [&str; 6] = [
    "known",
    "refused",
    "unsupported",
    "absent",
    "invalid",
    "ignored",
];

#[derive(Debug, thiserror::Error)]
pub(super) enum Invalid {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("no part {0}")]
    NoPart(&'static str),
    #[error("a part {0} that nobody reads")]
    UnknownPart(String),
    #[error("no system call {0}")]
    UnknownCall(String),
    #[error("part {0} neither lists what is allowed nor what is not")]
    Shape(&'static str),
    #[error("{call} has no argument {index}")]
    Argument { call: String, index: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Allow,
    Errno(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Test {
    Eq,
    Ne,
    /// Equal in the bits of this mask.
    MaskedEq(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Width {
    /// The lower half: all that the kernel looks at where it takes an `int`.
    Dword,
    Qword,
}

/// About one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Condition {
    pub(super) index: u8,
    #[serde(rename = "type")]
    pub(super) width: Width,
    #[serde(rename = "op")]
    pub(super) test: Test,
    #[serde(rename = "val")]
    pub(super) value: u64,
}

/// What happens when all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Action,
}

/// The first branch that holds, or the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) branches: Vec<Branch>,
    pub(super) otherwise: Action,
}

#[derive(Debug)]
pub(super) struct Decisions {
    named: BTreeMap<u32, Decision>,
    /// For every number that the file does not name.
    unknown: Action,
}

#[derive(Deserialize)]
struct Filter {
    mismatch_action: Action,
    match_action: Action,
    #[serde(rename = "filter")]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    syscall: String,
    #[serde(default)]
    args: Vec<Condition>,
}

/// Numbers that share a decision, up to the next one's first.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) decision: Decision,
}

impl Decisions {
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let mut filters: BTreeMap<String, Filter> = serde_json::from_str(text)?;
        let mut decisions = Self {
            named: BTreeMap::new(),
            unknown: Action::Allow,
        };
        for name in FILTERS {
            let filter = filters.remove(name).ok_or(Invalid::NoPart(name))?;
            match (filter.match_action, filter.mismatch_action) {
                (Action::Allow, refusal @ Action::Errno(_)) => {
                    decisions.allow_only(name, &filter.entries, refusal)?;
                }
                (refusal @ Action::Errno(_), Action::Allow) => {
                    decisions.object(filter.entries, refusal)?;
                }
                _ => return Err(Invalid::Shape(name)),
            }
        }
        match filters.into_keys().next() {
            Some(name) => Err(Invalid::UnknownPart(name)),
            None => Ok(decisions),
        }
    }

    /// A list of what is allowed, whatever the arguments. It must come first: it has no word where
    /// another one objects.
    fn allow_only(
        &mut self,
        part: &'static str,
        entries: &[Entry],
        refusal: Action,
    ) -> Result<(), Invalid> {
        if !self.named.is_empty() || entries.iter().any(|entry| !entry.args.is_empty()) {
            return Err(Invalid::Shape(part));
        }
        self.unknown = refusal;
        for entry in entries {
            self.decision(&entry.syscall)?.otherwise = Action::Allow;
        }
        Ok(())
    }

    fn object(&mut self, entries: Vec<Entry>, action: Action) -> Result<(), Invalid> {
        let mut after: BTreeMap<String, Vec<Branch>> = BTreeMap::new();
        for Entry { syscall, args } in entries {
            if let Some(wrong) = args.iter().find(|condition| condition.index > 5) {
                let index = wrong.index;
                return Err(Invalid::Argument {
                    call: syscall,
                    index,
                });
            }
            after.entry(syscall).or_default().push(Branch {
                conditions: args,
                action,
            });
        }
        for (syscall, mut branches) in after {
            let decision = self.decision(&syscall)?;
            // Before those of the filters below.
            branches.append(&mut decision.branches);
            decision.branches = branches;
        }
        Ok(())
    }

    fn decision(&mut self, name: &str) -> Result<&mut Decision, Invalid> {
        let number = number_of(name).ok_or_else(|| Invalid::UnknownCall(name.to_owned()))?;
        let otherwise = self.unknown;
        Ok(self.named.entry(number).or_insert(Decision {
            branches: Vec::new(),
            otherwise,
        }))
    }

    /// All numbers from 0 to the largest, in as few pieces as there are.
    pub(super) fn ranges(&self) -> Vec<Range> {
        let unknown = Decision {
            branches: Vec::new(),
            otherwise: self.unknown,
        };
        let mut ranges: Vec<Range> = Vec::new();
        let mut add = |first: u32, decision: Decision| {
            if ranges.last().is_none_or(|last| last.decision != decision) {
                ranges.push(Range { first, decision });
            }
        };
        let mut next = 0;
        for (number, decision) in &self.named {
            if *number > next {
                add(next, unknown.clone());
            }
            add(*number, decision.simplified());
            next = number + 1;
        }
        add(next, unknown);
        ranges
    }
}

impl Decision {
    /// Without what is never reached, so that equal ones look equal.
    fn simplified(&self) -> Self {
        let certain = |branch: &Branch| branch.conditions.is_empty();
        match self.branches.iter().position(certain) {
            Some(end) => Self {
                branches: self.branches[..end].to_vec(),
                otherwise: self.branches[end].action,
            },
            None => self.clone(),
        }
    }
}
