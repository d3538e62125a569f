//! The options of a run.

use std::{collections::BTreeSet, fmt, path::PathBuf, str::FromStr, time::Duration};

use soulbox_client::Client;

/// What is measured together; the order is that of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    Create,
    Exec,
    /// With the same pool as much of `create`.
    Throughput,
    Pty,
    Files,
    RunCode,
    Pause,
    Density,
    Scale,
}

impl Suite {
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Exec,
        Self::Throughput,
        Self::Pty,
        Self::Files,
        Self::RunCode,
        Self::Pause,
        Self::Density,
        Self::Scale,
    ];

    /// Whether alternatives are asked for the same. Those that do come first.
    pub(crate) fn compares(self) -> bool {
        matches!(self, Self::Create | Self::Exec)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Exec => "exec",
            Self::Pty => "pty",
            Self::Files => "files",
            Self::RunCode => "run_code",
            Self::Pause => "pause",
            Self::Throughput => "throughput",
            Self::Density => "density",
            Self::Scale => "scale",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Create => {
                "from the request for a sandbox to the first output of a command in it: one by \
                 one, one every 200 ms, many at once; warm and cold"
            }
            Self::Exec => "a command in a running sandbox, to its end",
            Self::Pty => "one key stroke on a terminal, to its echo",
            Self::Files => "writing and reading a small and a large file",
            Self::RunCode => "`1+1` in the code interpreter",
            Self::Pause => "pause, resume, snapshot, fork into one and into many",
            Self::Throughput => "whole short runs per second, and commands per second",
            Self::Density => "memory of an idle sandbox, everything counted",
            Self::Scale => "what each operation costs among few and among many sandboxes",
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|suite| suite.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
            format!("there are {}", names.join(", "))
        })
    }
}

/// Which server to measure.
#[derive(Debug, Clone)]
pub enum ServerChoice {
    /// Servers of our own, made of `program`, on folders below `scratch`.
    Own {
        program: PathBuf,
        scratch: PathBuf,
        /// For `soulbox serve`; they win over ours.
        arguments: Vec<String>,
    },
    Running(Box<Client>),
}

/// What to do about Docker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DockerChoice {
    /// Use the daemon that runs, else start one on a folder of our own.
    #[default]
    Start,
    /// Only the daemon that runs.
    Use,
    Off,
}

/// Sandboxes that a server can be asked to hold at the same time: it runs at most 4,096, of which a
/// few are kept for those in the making.
pub const MOST_SANDBOXES: u32 = 4000;

/// With fewer, a percentile is a single round.
pub(crate) const FEW_ROUNDS: usize = 20;

#[derive(Debug, Clone)]
pub struct Options {
    pub server: ServerChoice,
    /// As it was typed, for the report; without secrets.
    pub command: String,
    /// That the program was built from, for the report.
    pub commit: Option<&'static str>,
    pub quick: bool,
    pub suites: BTreeSet<Suite>,
    /// Timed rounds per contender.
    pub rounds: usize,
    /// Rounds before them that are not counted.
    pub warm_up: usize,
    /// Sandboxes of one burst, and of the staggered run.
    pub burst: usize,
    /// How often the burst is repeated.
    pub bursts: usize,
    /// Copies of the large fork; at most 100.
    pub copies: u32,
    /// Idle sandboxes of `density` and `scale`.
    pub sandboxes: usize,
    /// Bytes of the large file.
    pub large_file: usize,
    /// How long `throughput` goes on, for each of its parts.
    pub span: Duration,
    /// Clients at the same time in `throughput`.
    pub parallel: usize,
    /// Build the interpreter's template when it is missing.
    pub with_interpreter: bool,
    /// Measure the alternatives too.
    pub compare: bool,
    pub docker: DockerChoice,
}

impl Options {
    pub fn full(server: ServerChoice) -> Self {
        Self {
            server,
            command: String::new(),
            commit: None,
            quick: false,
            suites: Suite::ALL.into(),
            rounds: 50,
            warm_up: crate::WARM_UP,
            burst: 100,
            bursts: 3,
            copies: 100,
            sandboxes: 100,
            large_file: 64 << 20,
            span: Duration::from_secs(10),
            parallel: 8,
            with_interpreter: false,
            compare: true,
            docker: DockerChoice::default(),
        }
    }

    /// Every path of it, with figures that mean nothing.
    pub fn quick(server: ServerChoice) -> Self {
        Self {
            quick: true,
            rounds: 3,
            warm_up: 1,
            // A server with this pool is needed anyway.
            burst: crate::fleet::EVERYDAY,
            bursts: 1,
            copies: 3,
            sandboxes: 12,
            large_file: 4 << 20,
            span: Duration::from_secs(1),
            parallel: 4,
            ..Self::full(server)
        }
    }

    /// Why the times of this run are held against no promise.
    pub(crate) fn not_judged(&self) -> Option<&'static str> {
        if self.rounds < FEW_ROUNDS {
            Some("too few rounds")
        } else {
            self.quick.then_some("a quick run")
        }
    }

    /// What a server must be able to hold.
    pub(crate) fn most_sandboxes(&self) -> usize {
        const SPARE: usize = 100;
        let most = self.sandboxes.max(self.burst).max(self.copies as usize);
        (most + SPARE).max(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_judged_after_enough_rounds_that_are_not_quick() {
        let server = || ServerChoice::Own {
            program: PathBuf::new(),
            scratch: PathBuf::new(),
            arguments: Vec::new(),
        };
        let mut full = Options::full(server());
        assert_eq!(full.not_judged(), None);
        full.rounds = FEW_ROUNDS - 1;
        assert_eq!(full.not_judged(), Some("too few rounds"));
        let mut quick = Options::quick(server());
        assert_eq!(quick.not_judged(), Some("too few rounds"));
        quick.rounds = FEW_ROUNDS;
        assert_eq!(quick.not_judged(), Some("a quick run"));
    }

    #[test]
    fn suites_are_known_by_their_names() {
        for suite in Suite::ALL {
            assert_eq!(suite.name().parse(), Ok(suite));
            assert!(!suite.about().is_empty());
        }
        let error = "creat".parse::<Suite>().unwrap_err();
        assert!(error.contains("create, exec, throughput"), "{error}");
    }
}
