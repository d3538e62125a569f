use std::{fmt, path::Path};

use crate::{
    checks::{self, Scratch},
    report::{Finding, Outcome},
};

/// Why the server cannot run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// What `soulbox serve` asks before it starts, in well under 100 ms. Blocking.
///
/// Free space is asked for apart ([`free_space`](crate::free_space)): what an earlier start has left
/// must be reachable on a full disk too.
pub fn preflight(data_dir: &Path) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut ask = |name: &str, finding: Finding| {
        if finding.outcome == Outcome::Fail {
            problems.push(Problem {
                what: format!("{name}: {}", finding.detail),
                advice: finding
                    .advice
                    .unwrap_or_else(|| "run `soulbox doctor`".into()),
            });
        }
        finding.outcome == Outcome::Fail
    };
    // Without root everything else fails too, and says so less clearly.
    let not_root = ask("privileges", checks::identity::root());
    if !ask("kernel", checks::identity::kernel()) && !not_root {
        let scratch = Scratch::new(data_dir);
        // Overlays have their ids from a user namespace.
        if !ask("namespaces", checks::probes::namespaces(&scratch)) {
            ask(
                "overlay with shifted ids",
                checks::probes::overlay_read_only(&scratch),
            );
        }
        ask("disk images", checks::storage::programs());
        ask("control groups", checks::cgroups::quick());
        ask("nftables", checks::probes::nft_present());
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}
