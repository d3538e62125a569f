use anyhow::Result;

use crate::{args::CompletionsArgs, install::completions, output};

pub(super) fn run(args: &CompletionsArgs) -> Result<u8> {
    let script = completions(args.shell);
    output::text(String::from_utf8_lossy(&script).trim_end())?;
    Ok(0)
}
