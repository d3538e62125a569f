//! Code in the sandbox's interpreter, for templates that have one.

use std::time::Duration;

use http::{Method, header};
use serde::Deserialize;
use serde_json::json;

use super::{Envd, encode};
use crate::{Error, Result, transport};

/// Where the code interpreter of E2B's templates listens.
const PORT: u16 = 49_999;

/// The result of a piece of code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeOutcome {
    /// The last expression, as text.
    pub result: Option<String>,
    /// Name and value of what was raised.
    pub error: Option<String>,
}

impl Envd {
    /// Runs it in the default context and waits for its end.
    pub async fn run_code(&self, code: &str, limit: Duration) -> Result<CodeOutcome> {
        let body = json!({ "code": code, "context_id": null, "language": null, "env_vars": null });
        let request = self
            .request_to(PORT, Method::POST, "/execute")?
            .header(header::CONTENT_TYPE, "application/json")
            .body(transport::full(encode(&body)?))
            .map_err(|error| Error::protocol(error.to_string()))?;
        let answer = self
            .transport
            .unary(request, "running the code", limit)
            .await?;
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        outcome(&answer.body).ok_or_else(|| Error::Cut {
            id: self.id.clone(),
        })
    }
}

/// `None`: it breaks off before the end. Lines that make no sense come from inside.
fn outcome(lines: &[u8]) -> Option<CodeOutcome> {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Line {
        Result {
            text: Option<String>,
            #[serde(default)]
            is_main_result: bool,
        },
        Error {
            name: String,
            value: String,
        },
        EndOfExecution,
        #[serde(other)]
        Other,
    }
    let mut outcome = CodeOutcome::default();
    for line in lines.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Line::Result {
                text,
                is_main_result: true,
            }) => outcome.result = text,
            Ok(Line::Error { name, value }) => outcome.error = Some(format!("{name}: {value}")),
            Ok(Line::EndOfExecution) => return Some(outcome),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_result_and_the_error_are_found_among_the_lines() {
        let lines = br#"{"type": "number_of_executions", "execution_count": 1}
{"type": "result", "text": "shown", "extra": {}, "is_main_result": false}
{"type": "result", "text": "2", "extra": {}, "is_main_result": true}
{"type": "end_of_execution"}
"#;
        assert_eq!(outcome(lines).unwrap().result.as_deref(), Some("2"));
        let failed = br#"{"type": "error", "name": "E", "value": "bad", "traceback": ""}
{"type": "end_of_execution"}
"#;
        assert_eq!(outcome(failed).unwrap().error.as_deref(), Some("E: bad"));
    }

    #[test]
    fn an_answer_without_an_end_is_no_outcome() {
        assert_eq!(outcome(b"{\"type\": \"keepalive\"}\nnonsense\n"), None);
    }
}
