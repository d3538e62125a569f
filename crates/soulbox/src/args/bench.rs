use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use soulbox_bench::{DockerChoice, MOST_SANDBOXES, Suite};

use super::{
    ServerArgs,
    values::{mebibytes, seconds},
};

/// Measure SoulBox on this machine, beside what else could be used.
///
/// Starts servers of its own on a scratch folder (which needs root), asks them as the SDKs would,
/// and asks bare clone, bwrap, docker and runsc for the same in alternating rounds, as far as the
/// machine has them. Everything that was started is ended again, also on Ctrl-C. The tables are
/// printed with the method of each figure; what failed is counted, what was skipped has a reason.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo soulbox bench                                  # everything but run_code: some minutes
  sudo soulbox bench --with-interpreter               # run_code too: many minutes more
  sudo soulbox bench create exec --rounds 200
  sudo soulbox bench density scale --sandboxes 1000
  sudo soulbox bench --json bench.json --html bench.html
  sudo soulbox bench throughput -- --pool 64          # with options of `soulbox serve`
  soulbox bench exec files --running                  # the server that other commands speak to

Exit codes: 0 also when a promise is broken; 1 then only with --check, and when nothing could be
measured.")]
pub(crate) struct BenchArgs {
    /// What to measure; everything when none is named (see --list)
    #[arg(value_name = "SUITE", value_parser = clap::value_parser!(Suite))]
    pub suites: Vec<Suite>,
    /// List what can be measured
    #[arg(long)]
    pub list: bool,
    /// Few rounds and small sizes: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Timed rounds of each contender [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Sandboxes of a burst, and of the staggered run [default: 100]
    #[arg(long, value_name = "N", value_parser = burst)]
    pub burst: Option<u32>,
    /// Idle sandboxes of `density` and `scale` [default: 100]
    #[arg(long, value_name = "N", value_parser = sandboxes)]
    pub sandboxes: Option<u32>,
    /// Size of the large file; 512, 512m or 2g [default: 64m]
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    pub large_file: Option<u32>,
    /// How long each part of `throughput` goes on; 10, 30s or 2m [default: 10]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub span: Option<u32>,
    /// Clients at the same time in `throughput` [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub parallel: Option<u32>,
    /// Build the interpreter's template in the bench's own server, for `run_code`, which is skipped
    /// without it: many minutes; a server that has it is measured with --running
    #[arg(long)]
    pub with_interpreter: bool,
    /// Only SoulBox
    #[arg(long)]
    pub no_compare: bool,
    /// Docker: the daemon that runs or else one of our own, only the one that runs, or none
    #[arg(long, value_name = "WHICH", default_value = "start")]
    pub docker: DockerArg,
    /// Write everything, every single time included, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one page with plots that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Exit with 1 if a promise is broken
    #[arg(long)]
    pub check: bool,
    /// Where the scratch folder is made: what sandboxes write goes there
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub scratch: PathBuf,
    /// Measure the server that other commands speak to, instead of one of its own
    #[arg(long)]
    pub running: bool,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Options for `soulbox serve`
    #[arg(last = true, value_name = "OPTION", conflicts_with = "running")]
    pub serve: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DockerArg {
    Start,
    Use,
    Off,
}

impl From<DockerArg> for DockerChoice {
    fn from(argument: DockerArg) -> Self {
        match argument {
            DockerArg::Start => Self::Start,
            DockerArg::Use => Self::Use,
            DockerArg::Off => Self::Off,
        }
    }
}

impl BenchArgs {
    /// An address is always that of a running server.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.running || self.server.api_url.is_some() || self.server.context.is_some()
    }

    /// Changes what was named.
    pub(crate) fn apply(&self, options: &mut soulbox_bench::Options) {
        let set = |to: &mut usize, from: Option<u32>| {
            if let Some(value) = from {
                *to = value as usize;
            }
        };
        set(&mut options.rounds, self.rounds);
        set(&mut options.burst, self.burst);
        set(&mut options.sandboxes, self.sandboxes);
        set(&mut options.parallel, self.parallel);
        if let Some(mebibytes) = self.large_file {
            options.large_file = (mebibytes as usize) << 20;
        }
        if let Some(seconds) = self.span {
            options.span = Duration::from_secs(seconds.into());
        }
        if !self.suites.is_empty() {
            options.suites = self.suites.iter().copied().collect();
        }
        options.with_interpreter = self.with_interpreter;
        options.compare = !self.no_compare;
        options.docker = self.docker.into();
    }
}

fn span(text: &str) -> Result<u32, String> {
    match seconds(text)? {
        0 => Err("nothing can be measured in no time".to_owned()),
        span => Ok(span),
    }
}

fn burst(text: &str) -> Result<u32, String> {
    sandbox_count(text, 1)
}

/// Among fewer, nothing is many.
fn sandboxes(text: &str) -> Result<u32, String> {
    sandbox_count(text, 10)
}

fn sandbox_count(text: &str, least: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if number > MOST_SANDBOXES => Err(format!(
            "one server runs at most {MOST_SANDBOXES} sandboxes at the same time"
        )),
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("choose between {least} and {MOST_SANDBOXES}")),
    }
}
