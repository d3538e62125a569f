//! What outlives sandboxes: volumes and secrets.

use clap::{Args, Subcommand};

use super::{ServerArgs, values::assignment};

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    Create(VolumeCreateArgs),
    #[command(visible_alias = "list")]
    Ls(VolumeListArgs),
    Inspect(VolumeInspectArgs),
    Rm(VolumeRemoveArgs),
}

/// Make a volume and print its id.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox volume create results
  soulbox run -v results:/data --shell 'date >> /data/log'")]
pub(crate) struct VolumeCreateArgs {
    /// What to call it
    pub name: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// List the volumes.
#[derive(Debug, Args)]
pub(crate) struct VolumeListArgs {
    /// Names only
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// For programs: the server's own objects
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show volumes as JSON, without their tokens.
#[derive(Debug, Args)]
pub(crate) struct VolumeInspectArgs {
    /// Names, ids, or beginnings of ids
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Delete volumes, with everything in them.
///
/// One that a sandbox has, running or paused, is refused.
#[derive(Debug, Args)]
pub(crate) struct VolumeRemoveArgs {
    /// Names, ids, or beginnings of ids
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    Create(SecretCreateArgs),
    #[command(visible_alias = "list")]
    Ls(SecretListArgs),
    Rm(SecretRemoveArgs),
}

/// Keep a secret. Its value is read from standard input, or asked for on a terminal.
///
/// Values are sealed on the server's disk and never shown again. A value is never an argument:
/// others on the machine could read it there. One line ending at the end is not part of it.
///
/// Nothing reads them yet: they are kept for E2B's SDKs, which can make and list them, and for
/// requests that will carry them out of a sandbox. Give a program its secrets with --env.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox secret create api-token < token
  soulbox secret create api-token          # asks for it
  soulbox secret create api-token --replace < token")]
pub(crate) struct SecretCreateArgs {
    /// What to call it
    pub name: String,
    /// Give one that is there another value
    #[arg(long, conflicts_with = "metadata")]
    pub replace: bool,
    /// Metadata by which it can be told from others. May be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub metadata: Vec<(String, String)>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// List the secrets, without their values.
#[derive(Debug, Args)]
pub(crate) struct SecretListArgs {
    /// Names only
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// For programs: the server's own objects
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Delete secrets.
#[derive(Debug, Args)]
pub(crate) struct SecretRemoveArgs {
    /// Names or ids
    #[arg(required = true, value_name = "SECRET")]
    pub secrets: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}
