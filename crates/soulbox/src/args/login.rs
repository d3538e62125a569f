use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Remember a server and a key for it, and use it from now on.
///
/// The key is asked for, or read from standard input or a file: never from the command line, which other users
/// of this machine can see. It is tried before it is kept, in ~/.config/soulbox (or XDG_CONFIG_HOME), for you
/// alone. A server with a CA of its own is trusted when you have compared the fingerprint, which `soulbox trust
/// --dry-run` shows on its machine; nothing is sent to it before that.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox login https://api.sandboxes.example.com
  soulbox login https://10.1.2.3:3443 --name lab --ca-fingerprint 5A:0B:…
  soulbox login https://api.example.com < key.txt")]
pub(crate) struct LoginArgs {
    /// Address of the server
    pub url: String,
    /// What to call it [default: its domain or host]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A file with the API key
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// The certificate of the server's own CA, brought here safely
    #[arg(long, value_name = "FILE", conflicts_with = "ca_fingerprint")]
    pub ca: Option<PathBuf>,
    /// The SHA-256 fingerprint of the server's own CA, instead of the question
    #[arg(long, value_name = "SHA256")]
    pub ca_fingerprint: Option<String>,
    /// Send the key without encryption, over a network that you trust
    #[arg(long)]
    pub allow_http: bool,
}

/// Forget a server and the key for it.
///
/// The key itself stays valid: `soulbox key rm` deletes it.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// Which one [default: the current one]
    pub name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    Ls(ContextListArgs),
    /// Use this one from now on
    Use {
        name: String,
    },
    /// Show one: where it is, not its key
    Show(ContextNameArgs),
    /// Print one as lines for a shell, for E2B's SDKs
    ///
    /// `eval "$(soulbox context env)"`
    Env(ContextNameArgs),
    /// Forget servers and the keys for them
    Rm {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

/// List the servers that you have logged in to.
#[derive(Debug, Args)]
pub(crate) struct ContextListArgs {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ContextNameArgs {
    /// Which one [default: the current one]
    pub name: Option<String>,
}
