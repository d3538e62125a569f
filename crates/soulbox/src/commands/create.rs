//! A sandbox that goes on when the command has ended.

use anyhow::Result;
use serde_json::json;

use crate::{
    args::NewSandboxArgs,
    context::Server,
    interrupts::Interrupts,
    output, report,
    sandbox::{self, check_timeout},
};

pub(super) async fn run(args: &NewSandboxArgs) -> Result<u8> {
    check_timeout(&args.create)?;
    let server = Server::connect(&args.server)?;
    let mut interrupts = Interrupts::listen()?;
    let made = sandbox::create(&server, &args.create, &mut interrupts).await?;
    if args.json {
        output::json(&json!({
            "sandboxID": made.id,
            "templateID": made.template,
            "alias": made.alias,
            "envdVersion": made.envd_version,
            "domain": made.domain,
        }))?;
    } else {
        output::text(&output::printable(&made.id))?;
    }
    if args.create.timeout.is_none() && output::is_terminal() {
        report::note("it ends in 5 min: --timeout sets another time, `soulbox timeout` moves it");
    }
    Ok(0)
}
