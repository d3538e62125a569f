use clap::Args;

use super::ServerArgs;

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

/// List the processes that were started in a sandbox.
///
/// Those that were started through its agent and still run; `soulbox exec SANDBOX ps aux` shows
/// the others too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox ps i3k4
  soulbox exec i3k4 -- ps aux          # every process, by the sandbox's own ps")]
pub(crate) struct ProcessesArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show what happened to a sandbox.
///
/// Its life, the starts and ends of its processes, and what its agent reported.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox logs i3k4
  soulbox logs -f i3k4
  soulbox logs i3k4 --json | jq -r 'select(.level == \"error\") | .message'")]
pub(crate) struct LogsArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Go on until the sandbox ends
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
