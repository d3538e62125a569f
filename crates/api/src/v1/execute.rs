//! SoulBox's own: a piece of code in any installed language, or many of them, in one call.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use soulbox_code_runner::{Error as ExecuteError, Execution, Executor, Outcome};
use soulbox_control::ErrorCode;

use super::error;
use crate::{
    router::App,
    shared::{
        answer::ErrorBody,
        auth::Caller,
        body::Document,
        error::{ApiError, Result},
        path::SandboxPath,
        query::Query,
    },
};

const MOST_EXECUTIONS: usize = 100;
const MOST_PARALLEL: usize = 8;
/// Of all streams of a call together: the answer is put together in memory.
const MOST_OUTPUT: usize = 16 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    executions: Vec<Execution>,
    /// How many run at a time; one after the other when nothing is said.
    #[serde(default)]
    parallel: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Each {
    Done(Outcome),
    Failed { error: ErrorBody },
}

#[derive(Debug, Serialize)]
struct Results {
    results: Vec<Each>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Languages {
    languages: Vec<&'static str>,
}

/// One execution, or with `executions` a batch whose results come in the same order.
pub(crate) async fn execute(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    document: Document,
) -> Result<Response> {
    if document.0.get("executions").is_none() {
        let execution: Execution = document.parse()?;
        let executor = Executor::new(app.control.enter(&caller.tenant, &id).await?);
        return Ok(Json(executor.execute(&execution).await?).into_response());
    }
    let mut batch: Batch = document.parse()?;
    if batch.executions.is_empty() || batch.executions.len() > MOST_EXECUTIONS {
        return Err(ApiError::bad_request(format!(
            "a batch has 1 to {MOST_EXECUTIONS} executions"
        )));
    }
    let each = MOST_OUTPUT / 2 / batch.executions.len();
    for execution in &mut batch.executions {
        execution.keep_at_most(each);
    }
    let parallel = batch.parallel.unwrap_or(1).clamp(1, MOST_PARALLEL);
    let executor = Executor::new(app.control.enter(&caller.tenant, &id).await?);
    let each = stream::iter(batch.executions).map(|execution| {
        let executor = &executor;
        async move { executor.execute(&execution).await }
    });
    let results = each
        .buffered(parallel)
        .map(|result| match result {
            Ok(outcome) => Each::Done(outcome),
            Err(error) => Each::Failed {
                error: error::body(&error.into()),
            },
        })
        .collect()
        .await;
    Ok(Json(Results { results }).into_response())
}

pub(crate) async fn languages(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    query: Query,
) -> Result<Json<Languages>> {
    let executor = Executor::new(app.control.enter(&caller.tenant, &id).await?);
    let languages = executor.languages(query.text("user")).await?;
    Ok(Json(Languages { languages }))
}

impl From<ExecuteError> for ApiError {
    fn from(error: ExecuteError) -> Self {
        use ExecuteError::{
            Archive, Mute, NotAName, NotInstalled, Sandbox, TooLarge, UnknownLanguage,
        };
        let code = match error {
            UnknownLanguage(_) => ErrorCode::UnknownLanguage,
            NotInstalled { .. } => ErrorCode::LanguageNotInstalled,
            TooLarge { .. } => ErrorCode::RequestTooLarge,
            NotAName(_) => ErrorCode::InvalidRequest,
            Mute { .. } => ErrorCode::SandboxUnresponsive,
            Sandbox(soulbox_envd_client::Error::Refused { .. }) => ErrorCode::SandboxRefused,
            Sandbox(_) => ErrorCode::SandboxUnreachable,
            Archive(_) => ErrorCode::OperationFailed,
        };
        Self::new(code, error.to_string())
    }
}
