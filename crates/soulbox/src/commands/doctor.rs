use anyhow::Result;
use soulbox_doctor::DoctorOptions;

use crate::{args::DoctorArgs, output};

pub(super) async fn run(args: DoctorArgs) -> Result<u8> {
    let options = DoctorOptions {
        data_dir: args.data_dir,
        thorough: !args.quick,
    };
    let report = tokio::task::spawn_blocking(move || soulbox_doctor::run(&options)).await?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(report.render().trim_end())?;
    }
    Ok(u8::from(!report.usable()))
}
