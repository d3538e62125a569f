use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};

/// Make this machine open the sandboxes' names over HTTPS, and undo it.
///
/// Puts the server's certificate authority into the system's store, and tells the resolver (systemd-resolved,
/// NetworkManager's or another dnsmasq, or /etc/resolv.conf) who answers the domain's names. Shows what it is
/// about to do and asks. Programs that do not read the system's store, such as Node and Python's certifi, are
/// told by `env.tls`, or `soulbox context env`. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo soulbox trust                       # on the server's machine
  sudo soulbox trust --dry-run             # only show it, with the CA's fingerprint
  sudo soulbox trust --remove              # as it was before
  sudo soulbox trust --context lab --dns 10.1.2.3:53
  soulbox trust --for macos > trust.sh     # for a Mac")]
pub(crate) struct TrustArgs {
    /// Undo exactly what was done
    #[arg(long)]
    pub remove: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// One half alone
    #[arg(long, value_name = "PART")]
    pub only: Option<TrustPart>,
    /// Print a script for another system instead
    #[arg(long = "for", value_name = "SYSTEM", conflicts_with_all = ["remove", "only"])]
    pub target: Option<TrustTarget>,
    /// A name server that knows the domain, when it is not this machine's server
    #[arg(long, value_name = "ADDRESS")]
    pub dns: Option<SocketAddr>,
    /// The server of this data folder [default: SOULBOX_DATA_DIR, else /var/lib/soulbox]
    #[arg(long, value_name = "DIR", conflicts_with = "context")]
    pub data_dir: Option<PathBuf>,
    /// A server that you have logged in to (`soulbox login`)
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrustPart {
    Ca,
    Names,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrustTarget {
    Macos,
}
