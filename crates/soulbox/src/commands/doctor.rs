use anyhow::Result;
use soulbox_doctor::{DoctorOptions, Tried};

use crate::{args::DoctorArgs, output};

pub(super) async fn run(args: DoctorArgs) -> Result<u8> {
    // Without root nothing that needs it is tried: it would fail for that reason alone.
    let is_root = rustix::process::geteuid().is_root();
    let sandbox = if is_root {
        soulbox_server::try_sandbox(&args.data_dir).await
    } else {
        Tried::Not("needs root".into())
    };
    let https = args.https.address().map(|address| (address, "--https"));
    let admin = args.admin.address().map(|address| (address, "--admin"));
    let addresses = [Some((args.listen, "--listen")), https, admin];
    let options = DoctorOptions {
        data_dir: args.data_dir,
        thorough: !args.quick,
        addresses: addresses.into_iter().flatten().collect(),
        sandbox,
    };
    let report = tokio::task::spawn_blocking(move || soulbox_doctor::run(&options)).await?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(report.render().trim_end())?;
    }
    Ok(u8::from(!report.usable()))
}
