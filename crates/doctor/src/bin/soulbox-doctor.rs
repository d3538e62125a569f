//! `soulbox doctor` on its own, for the tests of this crate. Arguments: data folder, `--json`.

use std::{path::PathBuf, process::ExitCode};

use soulbox_doctor::{DoctorOptions, PROBE_COMMAND, TrialResult, preflight, probe, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [PROBE_COMMAND, name] => probe(name),
        ["preflight", dir] => match preflight(&PathBuf::from(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problems) => {
                for problem in problems {
                    println!("{problem}");
                }
                ExitCode::FAILURE
            }
        },
        [dir, ref rest @ ..] => {
            let report = run(&DoctorOptions {
                data_dir: dir.into(),
                min_free_disk: 1 << 30,
                thorough: true,
                addresses: Vec::new(),
                sandbox: TrialResult::Not("this program has none to try".into()),
            });
            if rest.contains(&"--json") {
                println!("{}", serde_json::to_string(&report).unwrap_or_default());
            } else {
                print!("{}", report.render());
            }
            if report.usable() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        [] => ExitCode::FAILURE,
    }
}
