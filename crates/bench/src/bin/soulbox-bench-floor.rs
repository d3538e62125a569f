//! `soulbox bench-floor` on its own, for the tests of this crate.

use std::process::ExitCode;

use soulbox_bench::floor::{COMMAND, serve};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [COMMAND, task] => serve(task),
        _ => ExitCode::FAILURE,
    }
}
