use clap::Args;

use super::{ServerArgs, values::seconds};

/// Pause sandboxes: they keep everything and use no cpu. What they have in memory stays there.
///
/// Files and what is in memory are kept as far as the sandbox's tier can, without an end: a paused
/// sandbox stays until it is resumed or killed.
///
/// What resumes it: `soulbox resume` (for five minutes, or --timeout); `Sandbox.connect` of an SDK
/// (for its timeout, five minutes unless set); a request to one of its ports or to its files and
/// commands, if it was made with auto-resume (for the timeout that it was made with, at least five
/// minutes). Other commands of `soulbox` do not: they say that it is paused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox pause i3k4
  soulbox pause $(soulbox ls -q)")]
pub(crate) struct PauseArgs {
    /// Ids, or beginnings of ids
    #[arg(required = true, value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Resume paused sandboxes, for five minutes unless --timeout says otherwise.
///
/// Prints when each of them ends. One that runs already keeps its end, if that is later.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox resume i3k4
  soulbox resume i3k4 --timeout 2h")]
pub(crate) struct ResumeArgs {
    /// Ids, or beginnings of ids
    #[arg(required = true, value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    /// How long they live from now on; 90, 15m or 2h
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "5m")]
    pub timeout: u32,
    #[command(flatten)]
    pub server: ServerArgs,
}
