use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use soulbox_types::Tier;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Ok,
    /// Works, with less than one would like.
    Warn,
    Fail,
    /// Not tried, as it is not there; the detail says what.
    Skipped,
    /// Could not be tried: it may work or not. The detail says why.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Stable, for programs.
    pub id: String,
    pub title: String,
    pub outcome: Outcome,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub advice: Option<String>,
    /// The jail tier cannot do without.
    pub required: bool,
    pub millis: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierReport {
    pub tier: Tier,
    /// Sandboxes can run in it: `soulbox serve` has it, and it works here.
    #[serde(default)]
    pub offered: bool,
    /// It was tried on this machine, and works, whether `soulbox serve` has it or not.
    pub available: bool,
    /// Could not be tried: it may be available or not.
    #[serde(default)]
    pub unknown: bool,
    pub reason: String,
}

impl TierReport {
    pub(crate) fn new(tier: Tier, available: bool, unknown: bool, reason: String) -> Self {
        Self {
            tier,
            offered: available && is_served(tier),
            available,
            unknown,
            reason,
        }
    }

    fn name(&self) -> String {
        format!("{:?}", self.tier).to_lowercase()
    }

    fn one_of(&self, [available, unknown, missing]: [&'static str; 3]) -> &'static str {
        match self {
            Self {
                available: true, ..
            } => available,
            Self { unknown: true, .. } => unknown,
            _ => missing,
        }
    }
}

/// Whether this version's server can run sandboxes in it at all.
fn is_served(tier: Tier) -> bool {
    tier == Tier::Jail
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub version: String,
    pub kernel: String,
    pub checks: Vec<Check>,
    pub tiers: Vec<TierReport>,
}

impl Report {
    /// Whether `soulbox serve` can run here.
    pub fn usable(&self) -> bool {
        self.tiers.iter().any(|tier| tier.offered)
    }

    pub fn check(&self, id: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }

    /// A table for people.
    pub fn render(&self) -> String {
        let width = self
            .checks
            .iter()
            .map(|check| check.title.len())
            .max()
            .unwrap_or(0);
        let mut text = format!("soulbox {} on Linux {}\n\n", self.version, self.kernel);
        let mut line = |parts: std::fmt::Arguments<'_>| {
            // Writing to a String cannot fail.
            writeln!(text, "{parts}").unwrap_or_default();
        };
        for check in &self.checks {
            let word = match check.outcome {
                Outcome::Ok => "ok",
                Outcome::Warn => "warn",
                Outcome::Fail => "FAIL",
                Outcome::Skipped => "-",
                Outcome::Unknown => "?",
            };
            line(format_args!(
                "{word:>4}  {:width$}  {}",
                check.title, check.detail
            ));
            if let Some(advice) = &check.advice {
                line(format_args!("      {:width$}  → {advice}", ""));
            }
        }
        let (served, others): (Vec<_>, Vec<_>) =
            self.tiers.iter().partition(|tier| is_served(tier.tier));
        line(format_args!("\nIsolation that sandboxes get here"));
        for tier in served {
            let word = tier.one_of(["yes", "?", "no"]);
            let name = tier.name();
            line(format_args!("{word:>4}  {name:width$}  {}", tier.reason));
        }
        if !others.is_empty() {
            line(format_args!(
                "\nOther tiers, which this server does not use yet"
            ));
        }
        for tier in others {
            let able = tier.one_of(["could", "might", "cannot"]);
            let name = tier.name();
            line(format_args!(
                "   -  {name:width$}  this machine {able} run it: {}",
                tier.reason
            ));
        }
        text
    }
}

/// The result of one check, before it has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(detail: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Ok,
            detail: detail.into(),
            advice: None,
        }
    }

    pub(crate) fn warn(detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Warn,
            detail: detail.into(),
            advice: Some(advice.into()),
        }
    }

    pub(crate) fn fail(detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Fail,
            detail: detail.into(),
            advice: Some(advice.into()),
        }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Unknown,
            detail: format!("unknown: {}", reason.into()),
            advice: None,
        }
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Skipped,
            detail: reason.into(),
            advice: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_every_check_with_its_advice() {
        let check = Check {
            id: "root".into(),
            title: "root".into(),
            outcome: Outcome::Fail,
            detail: "uid 1000".into(),
            advice: Some("run it as root".into()),
            required: true,
            millis: 1,
        };
        let tier = TierReport::new(Tier::Jail, false, false, "root failed".into());
        let report = Report {
            version: "0".into(),
            kernel: "6".into(),
            checks: vec![check],
            tiers: vec![tier],
        };
        let text = report.render();
        assert!(
            text.contains("FAIL  root  uid 1000\n            → run it as root\n"),
            "{text}"
        );
        assert!(text.contains("  no  jail  root failed\n"), "{text}");
        assert!(!text.contains("does not use yet"), "{text}");
        assert!(!report.usable());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["checks"][0]["outcome"], "fail");
        assert_eq!(json["tiers"][0]["tier"], "jail");
    }

    #[test]
    fn what_only_the_machine_could_do_is_not_shown_as_offered() {
        let tier =
            |tier, available, unknown| TierReport::new(tier, available, unknown, "as tried".into());
        let report = Report {
            version: "0".into(),
            kernel: "6".into(),
            checks: Vec::new(),
            tiers: vec![
                tier(Tier::Jail, true, false),
                tier(Tier::Gvisor, true, false),
                tier(Tier::Microvm, false, true),
                tier(Tier::Docker, false, false),
            ],
        };
        let text = report.render();
        assert_eq!(text.matches(" yes ").count(), 1, "{text}");
        let (_, others) = text
            .split_once("which this server does not use yet")
            .unwrap();
        for line in [
            "gvisor  this machine could run it: as tried",
            "microvm  this machine might run it: as tried",
            "docker  this machine cannot run it: as tried",
        ] {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(others).contains(&words(line)), "{line} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        let offered: Vec<_> = (0..4)
            .map(|at| json["tiers"][at]["offered"].clone())
            .collect();
        assert_eq!(offered, [true, false, false, false]);
    }
}
