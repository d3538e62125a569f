use std::path::PathBuf;

use clap::Args;

/// Install this program as a service, or upgrade the one that is installed.
///
/// Copies the running program to PREFIX/bin, with its man pages and shell completions, writes a unit
/// for systemd, enables and starts it. Where systemd does not run it says the command that serves.
///
/// Installing again is an upgrade: the program is replaced in one step and the server restarted;
/// sandboxes go on. When the new server does not start, the former program comes back by itself, with
/// the database that it had. Killed at any moment, it can be run again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo ./soulbox install
  sudo ./soulbox install --data-dir /srv/soulbox
  sudo soulbox install --rollback        # the program before the last upgrade
  soulbox install --dry-run              # what it would do
Settings of the server are variables in /etc/default/soulbox, such as SOULBOX_DOMAIN=example.com.")]
pub(crate) struct InstallArgs {
    /// What the server keeps [default: that of the installed unit, else /var/lib/soulbox]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Do not start or restart the server; it starts with the machine
    #[arg(long)]
    pub no_start: bool,
    /// Exchange the program for the one before the last upgrade
    #[arg(long, conflicts_with = "no_start")]
    pub rollback: bool,
    /// With --rollback: also the database as it was before the last upgrade, when the older program
    /// refuses the newer one. Keys, templates and snapshots made since are forgotten; sandboxes are not
    #[arg(long, requires = "rollback")]
    pub with_database: bool,
}

/// Remove what `soulbox install` has installed.
///
/// Stops the service and removes the program, its unit, man pages and completions. Without a server
/// nobody ends sandboxes at their deadline: while there are any it refuses, unless told to end them.
/// Templates, snapshots, volumes and keys stay in the data folder, unless it is purged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo soulbox uninstall
  sudo soulbox uninstall --end-sandboxes
  sudo soulbox uninstall --purge         # nothing is left")]
pub(crate) struct UninstallArgs {
    /// End every sandbox of this server first, of all keys, paused ones too
    #[arg(long)]
    pub end_sandboxes: bool,
    /// Also the sandboxes, the data folder and /etc/default/soulbox: everything is lost
    #[arg(long)]
    pub purge: bool,
    /// What the server keeps [default: that of the installed unit, else /var/lib/soulbox]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where it is installed.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The program is PREFIX/bin/soulbox
    #[arg(long, value_name = "PREFIX", default_value = "/usr/local")]
    pub prefix: PathBuf,
    /// Another root file system, such as that of an image: nothing is started or stopped
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    pub root: PathBuf,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Write the man pages into a folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox man /usr/local/share/man/man1
  soulbox man . && man ./soulbox-serve.1")]
pub(crate) struct ManArgs {
    /// Made when it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
