use std::path::PathBuf;

use clap::Args;

use super::ServerArgs;

/// Bring back a sandbox that cannot be used, or what is left of it.
///
/// One whose state could not be read is kept aside with its files (`soulbox ls --broken`). It comes
/// back paused, from its files; `soulbox resume` starts it. When what it was made of is not known
/// any more, its disk can be exported: an ext4 image, written by code that nobody has to trust, with
/// what it wrote itself. What a fork began with is in the snapshot that it was made from.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox recover i3k4                   # then: soulbox resume i3k4
  soulbox recover i3k4 --export disk.img # e.g. for `debugfs -R 'rdump /u0 out' disk.img`
  soulbox recover i3k4 --discard         # everything of it is lost")]
pub(crate) struct RecoverArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Write its disk to this new file, and leave it where it is
    #[arg(long, value_name = "FILE", conflicts_with = "discard")]
    pub export: Option<PathBuf>,
    /// Remove it for good, with its files
    #[arg(long)]
    pub discard: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}
