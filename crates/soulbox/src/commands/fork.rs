use anyhow::Result;

use crate::{
    args::ForkArgs, context::Server, interrupts::unless_interrupted, option_names::as_options,
    output, report,
};

pub(super) async fn run(args: &ForkArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    let forking = server.client.fork(&id, args.count, args.timeout);
    let leave = format!(
        "the server goes on with it: `soulbox ls` shows the copies, which end after {} s",
        args.timeout
    );
    let copies = unless_interrupted(forking, &leave).await??;
    let mut failed = 0;
    for copy in copies {
        match copy {
            Ok(copy) => output::text(&output::printable(&copy.id))?,
            Err(error) => {
                failed += 1;
                if failed == 1 {
                    report::print(&server.explain(as_options(error)).context("a copy"));
                }
            }
        }
    }
    if failed > 1 {
        report::complaint(&format!("{failed} of {} copies failed", args.count));
    }
    Ok(u8::from(failed > 0))
}
