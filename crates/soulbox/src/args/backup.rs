use std::path::PathBuf;

use clap::Args;
use soulbox_client::config::DEFAULT_DATA_DIR;

/// Copy everything that a server keeps into a folder, while it runs or not.
///
/// Sandboxes with their files, snapshots, templates, volumes, keys, secrets and certificates. Each
/// backup gets a folder of its own in DIR, named by the time (UTC); what the newest one there has
/// already is linked, not copied. Sandboxes run on; each stands still for a moment. What they have in
/// memory is not copied: they come back paused, from their files. Needs root. The backup holds keys
/// and secrets in a form that a server can use: keep it as safe as the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo soulbox backup /mnt/backups
  sudo soulbox backup /mnt/backups --json | jq -r .path")]
pub(crate) struct BackupArgs {
    /// Folder of the backups; made when absent
    #[arg(value_name = "DIR")]
    pub target: PathBuf,
    /// The server's data folder
    #[arg(long, value_name = "DIR", env = "SOULBOX_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// Make a data folder from a backup, for `soulbox serve`.
///
/// The backup is verified first: every file against its checksum. Nothing is written into a folder
/// that is not empty, and nothing that looks whole is left when it fails. Ids, API keys, tokens and
/// the certificate authority are the same as before; addresses may be others. Sandboxes come back
/// paused, from their files. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo soulbox restore /mnt/backups --data-dir /var/lib/soulbox     # the newest one
  sudo soulbox restore /mnt/backups/20261118T063700Z --data-dir /srv/soulbox
  sudo soulbox restore /mnt/backups --verify")]
pub(crate) struct RestoreArgs {
    /// A backup, or a folder of backups: then the newest
    pub backup: PathBuf,
    /// Where to: a folder that does not exist, or is empty
    #[arg(long, value_name = "DIR", required_unless_present = "verify")]
    pub data_dir: Option<PathBuf>,
    /// Only find out whether the backup is whole
    #[arg(long, conflicts_with = "data_dir")]
    pub verify: bool,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}
