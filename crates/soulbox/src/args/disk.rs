use clap::Args;

use super::ServerArgs;

/// Show what takes room on the server's disk, and what `soulbox prune` would free.
///
/// Each key sees what is its own. The build cache, which all share, is shown to the operator: the
/// key in the server's data folder. Sizes are what is really taken; disks and volumes are sparse.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox df
  soulbox df --json | jq '[.items[].bytes] | add'")]
pub(crate) struct DiskArgs {
    /// For programs: the server's own object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Free room on the server's disk: what can be made again, and logs of ended sandboxes.
///
/// The operator's key also frees the build cache: steps, image layers and uploads that no template,
/// sandbox or snapshot uses. Sandboxes, snapshots, volumes and templates stay, unless an option
/// names them; those that are in use stay in any case. On a terminal it asks first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox prune --dry-run
  soulbox prune -y
  soulbox prune --paused --snapshots   # these cannot be made again")]
pub(crate) struct PruneArgs {
    /// Only say what would be freed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(
        short = 'y',
        long = "yes",
        visible_alias = "force",
        visible_short_alias = 'f'
    )]
    pub yes: bool,
    /// Paused sandboxes too: everything in them is lost
    #[arg(long)]
    pub paused: bool,
    /// Snapshots too
    #[arg(long)]
    pub snapshots: bool,
    /// Volumes that no sandbox has too, with everything in them
    #[arg(long)]
    pub volumes: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}
