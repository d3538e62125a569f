use clap::{Args, Subcommand};

use super::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    Create(KeyCreateArgs),
    Ls(KeyListArgs),
    Rm(KeyRemoveArgs),
}

/// For the operator who has no key (any more).
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Offline {
    /// Straight in the data folder's database; a running server notices within seconds
    #[arg(long)]
    pub offline: bool,
}

/// Make a key and print it, once.
///
/// It is never shown again: the server keeps a hash.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox key create ci
  export E2B_API_KEY=$(soulbox key create laptop)
  sudo soulbox key create rescue --offline     # when every key is lost")]
pub(crate) struct KeyCreateArgs {
    /// What it is for
    pub name: String,
    #[command(flatten)]
    pub offline: Offline,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// List the keys, masked.
#[derive(Debug, Args)]
pub(crate) struct KeyListArgs {
    #[command(flatten)]
    pub offline: Offline,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Delete keys.
///
/// Clients that use them are refused from then on. The key of this very command is not deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox key rm 0199f3c2              # ids may be shortened while they are unique")]
pub(crate) struct KeyRemoveArgs {
    /// Ids as `soulbox key ls` shows them, or beginnings of ids
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub offline: Offline,
    #[command(flatten)]
    pub server: ServerArgs,
}
