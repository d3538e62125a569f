use clap::{Args, Subcommand};

use super::{ServerArgs, values::seconds};

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    Create(SnapshotCreateArgs),
    #[command(visible_alias = "list")]
    Ls(SnapshotListArgs),
    Rm(SnapshotRemoveArgs),
}

/// Keep the files of a sandbox as they are now, and print the snapshot's id.
///
/// The sandbox goes on. A snapshot is used as a template is: `soulbox create --template ID`. It is
/// kept until `soulbox snapshot rm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox snapshot create i3k4
  soulbox snapshot create i3k4 --name before-upgrade
  soulbox run --template before-upgrade -- ls")]
pub(crate) struct SnapshotCreateArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// What to call it
    #[arg(long, value_name = "NAME[:TAG]")]
    pub name: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// List the snapshots, newest first.
#[derive(Debug, Args)]
pub(crate) struct SnapshotListArgs {
    /// Only those of this sandbox
    #[arg(long, value_name = "ID")]
    pub sandbox: Option<String>,
    /// Ids only
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// For programs: the server's own objects
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Delete snapshots.
///
/// Sandboxes that were made from one go on.
#[derive(Debug, Args)]
pub(crate) struct SnapshotRemoveArgs {
    /// Ids or names, as `soulbox snapshot ls` shows them
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Make copies of a running sandbox, and print their ids.
///
/// Each begins with the files that the sandbox has now, and with none of its processes; what they
/// have in common is stored once. The sandbox goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox fork i3k4
  soulbox fork i3k4 -n 10 --timeout 1h")]
pub(crate) struct ForkArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub count: u32,
    /// How long the copies live; 90, 15m or 2h
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "5m")]
    pub timeout: u32,
    #[command(flatten)]
    pub server: ServerArgs,
}
