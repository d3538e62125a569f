use clap::Args;

use super::{ServerArgs, values::seconds};

/// List the sandboxes, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox ls
  soulbox ls -q | xargs soulbox kill
  soulbox ls --broken                  # those that cannot be used, with the reason
  soulbox ls --json | jq -r '.[] | select(.metadata.job == \"42\") | .sandboxID'")]
pub(crate) struct ListArgs {
    /// Ids only
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// Those that cannot be used, since something of their state could not be read: `soulbox
    /// recover` brings them back, or exports their disks
    #[arg(long)]
    pub broken: bool,
    /// For programs: the server's own objects
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// List the processes that were started in a sandbox; without one, the sandboxes.
///
/// Those that were started through its agent and still run; `soulbox top SANDBOX` shows the others
/// too. Without a sandbox it is what `docker ps` is: `soulbox ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox ps                           # the sandboxes, as `soulbox ls`
  soulbox ps i3k4
  soulbox exec i3k4 -- ps aux          # every process, by the sandbox's own ps")]
pub(crate) struct ProcessesArgs {
    /// Id, or the beginning of one; without it the sandboxes are listed
    pub sandbox: Option<String>,
    /// Accepted as Docker has it: paused sandboxes are always listed
    #[arg(short, long, conflicts_with = "sandbox")]
    pub all: bool,
    /// Ids of the sandboxes only
    #[arg(short, long, conflicts_with_all = ["sandbox", "json"])]
    pub quiet: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show what happened to a sandbox.
///
/// Its life, the starts and ends of its processes, and what its agent reported. Also of one that has
/// ended, for a day.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox logs i3k4
  soulbox logs -f i3k4
  soulbox logs i3k4 --json | jq -r 'select(.level == \"error\") | .message'")]
pub(crate) struct LogsArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Go on until the sandbox ends; of one that has ended, show what is kept
    #[arg(short, long)]
    pub follow: bool,
    /// For programs: one object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show what sandboxes use of cpu, memory and disk.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox stats
  soulbox stats i3k4 --json")]
pub(crate) struct StatsArgs {
    /// Id, or the beginning of one; without it all running sandboxes
    pub sandbox: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show things as JSON: sandboxes, templates, snapshots and volumes.
///
/// Each word is looked for in that order, by id, the beginning of an id, or name. Access tokens are
/// left out. The output is always a list, in the order of the words; what is not there is told on
/// stderr, and the exit code is 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox inspect i3k4
  soulbox inspect i3k4 | jq -r '.[0].endAt'
  soulbox inspect my-app results       # a template and a volume")]
pub(crate) struct InspectArgs {
    /// Ids, beginnings of ids, or names
    #[arg(required = true, value_name = "WORD")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show what happened to sandboxes: created, paused, resumed, killed and so on.
///
/// The newest hundred, or all since a time, oldest first. They are kept for a week, also of
/// sandboxes that have ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox events
  soulbox events -f
  soulbox events --since 2h i3k4
  soulbox events --json | jq -r 'select(.eventLabel == \"killed\") | .eventData.reason'")]
pub(crate) struct EventsArgs {
    /// Id, or the beginning of one; without it all sandboxes
    pub sandbox: Option<String>,
    /// Go on until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// From this long ago on; 90, 15m, 2h or 3d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub since: Option<u32>,
    /// For programs: one object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Wait until sandboxes end, and print why.
///
/// One line for each, in the order of the words: killed, expired (its time was over), died, evicted
/// or lost. Ctrl-C stops waiting; the sandboxes go on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox wait i3k4
  soulbox wait --timeout 10m i3k4 i9xy

Exit codes: 0 all have ended, 124 not within --timeout.")]
pub(crate) struct WaitArgs {
    /// Ids, or beginnings of ids
    #[arg(required = true, value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    /// Wait no longer than this; 90, 15m or 2h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub timeout: Option<u32>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show live what sandboxes use, or the processes in one.
///
/// On a terminal it is drawn anew every two seconds until q or Ctrl-C; elsewhere it is printed once.
/// The processes are listed by the sandbox's own `ps`, where it has one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox top
  soulbox top i3k4")]
pub(crate) struct TopArgs {
    /// Id, or the beginning of one; without it all running sandboxes
    pub sandbox: Option<String>,
    /// Print it once, also on a terminal
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}
