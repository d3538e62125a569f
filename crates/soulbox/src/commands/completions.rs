use anyhow::Result;
use clap::CommandFactory;

use crate::{
    args::{Cli, CompletionsArgs},
    output,
};

pub(super) fn run(args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "soulbox", &mut script);
    output::text(String::from_utf8_lossy(&script).trim_end())?;
    Ok(0)
}
