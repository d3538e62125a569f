//! `sudo` for images that have none: static, setuid root, without a password.
//!
//! A sandbox has one tenant, so everybody in it may become anybody in it. What matters here is that
//! scripts written for the real one work: its options, its environment rules, its exit codes.
//!
//! # Layout
//! - [`options`]: the command line
//! - [`account`]: users and groups, read from files and never through NSS
//! - [`environment`]: what the command sees
//! - [`launch`]: which program, as whom

mod account;
mod environment;
mod launch;
mod options;

use std::process::ExitCode;

use crate::options::{Action, Options};

const USAGE: &str = "usage: sudo [-EHiknSsvV] [-u user] [-g group] [-D directory] \
    [VAR=value ...] [--] [command [arg ...]]";

fn main() -> ExitCode {
    let parsed = Options::parse(std::env::args_os().skip(1));
    let outcome = match parsed {
        Err(message) => Err(format!("{message}\n{USAGE}")),
        Ok(options) => match options.action {
            Action::Version => {
                println!(
                    "Sudo version 1.9 (soulbox-sudo {})",
                    env!("CARGO_PKG_VERSION")
                );
                Ok(())
            }
            Action::Help => {
                println!("sudo - execute a command as another user\n\n{USAGE}");
                Ok(())
            }
            // There is nothing to remember and nothing to forget.
            Action::Validate => Ok(()),
            Action::List => {
                println!("Every user may run the following commands here:");
                println!("    (ALL : ALL) NOPASSWD: ALL");
                Ok(())
            }
            Action::Run => launch::launch(&options),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("sudo: {message}");
            ExitCode::FAILURE
        }
    }
}
