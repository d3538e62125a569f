//! Errors of code that is to run, as they go over the wire. Those of the control plane are told as by
//! E2B's surface.

use std::{fmt::Write, io, time::Duration};

use soulbox_code_runner::Error as ExecuteError;
use soulbox_envd_client::Error as EnvdError;
use soulbox_runtime::Error as NodeError;

use super::*;
use crate::shared::answer::on_the_wire;

const LIMIT: Duration = Duration::from_secs(3);

fn boom() -> io::Error {
    io::Error::other("boom")
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn of_code() -> Vec<ExecuteError> {
    let id = "iabc".parse().unwrap();
    vec![
        ExecuteError::UnknownLanguage(text("klingon")),
        ExecuteError::NotInstalled {
            language: "c",
            installed: vec!["sh"],
        },
        ExecuteError::TooLarge { limit: 1 },
        ExecuteError::Mute {
            what: "starting",
            limit: LIMIT,
        },
        ExecuteError::NotAName(text("A=B")),
        ExecuteError::Archive(boom()),
        ExecuteError::Sandbox(EnvdError::Unreachable(NodeError::SandboxNotFound(id))),
        ExecuteError::Sandbox(EnvdError::Refused {
            code: text("not_found"),
            message: text("why"),
        }),
        ExecuteError::Sandbox(EnvdError::CutOff {
            what: "running",
            source: None,
        }),
        ExecuteError::Sandbox(EnvdError::TooSlow {
            what: "it",
            limit: LIMIT,
        }),
        ExecuteError::Sandbox(EnvdError::Protocol(text("why"))),
        ExecuteError::Sandbox(EnvdError::Archive(boom())),
    ]
}

#[tokio::test]
async fn every_error_is_told_as_it_is_written_down() {
    let mut all = String::new();
    for error in of_code() {
        let name = format!("{error:?}");
        let shape = on_the_wire(respond(ApiError::from(error).problem())).await;
        writeln!(all, "# {name}\n{shape}\n").unwrap();
    }
    assert!(
        all.trim_end() == include_str!("errors.txt").trim_end(),
        "{all}"
    );
}

/// Until our own routes have a shape of their own.
#[test]
fn codes_are_told_as_by_e2bs_surface() {
    for code in Code::ALL {
        assert_eq!(shape(*code), crate::e2b::error::shape(*code), "{code}");
    }
}
