//! `POST /v1/execute`: programs in any installed language, one or many in one call.
//! `GET /v1/languages`: what is installed.

use futures_util::future::join_all;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    batch::{self, Program, Report},
    envd::{self, Variables},
    http::{
        body::{self, Body},
        reply::{self, Failure},
    },
    server::Server,
};

const MAX_PROGRAMS: usize = 1000;

#[derive(Deserialize)]
#[serde(untagged)]
enum Asked {
    Many { executions: Vec<Value> },
    One(Value),
}

pub(crate) async fn execute(
    server: &Server,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let token = request.headers().get("X-Access-Token").cloned();
    let body = body::read(request).await?;
    let asked: Asked = serde_json::from_slice(&body)
        .map_err(|error| refused(&batch::Error::Invalid(error.to_string())))?;
    let globals = globals(server, token).await;
    match asked {
        Asked::One(program) => match run(server, program, &globals).await {
            Ok(report) => Ok(reply::json(&report)),
            Err(error) => Err(refused(&error)),
        },
        Asked::Many { executions } if executions.len() > MAX_PROGRAMS => {
            Err(refused(&batch::Error::Invalid(format!(
                "at most {MAX_PROGRAMS} executions in one call, not {}",
                executions.len()
            ))))
        }
        Asked::Many { executions } => {
            let runs = executions
                .into_iter()
                .map(|program| run(server, program, &globals));
            let mut results = Vec::new();
            for result in join_all(runs).await {
                results.push(match result {
                    Ok(report) => serde_json::to_value(report).unwrap_or_default(),
                    Err(error) => described(&error),
                });
            }
            Ok(reply::json(&json!({"results": results})))
        }
    }
}

pub(crate) fn languages(server: &Server) -> Response<Body> {
    reply::json(&json!({
        "languages": server.runner.installed(),
        "kernels": server.launcher.names(),
    }))
}

async fn run(server: &Server, program: Value, globals: &Variables) -> Result<Report, batch::Error> {
    let program: Program = serde_json::from_value(program)
        .map_err(|error| batch::Error::Invalid(error.to_string()))?;
    server.runner.run(&program, globals).await
}

/// Without the sandbox's variables a program still runs.
async fn globals(server: &Server, token: Option<HeaderValue>) -> Variables {
    match envd::variables(server.options.envd_port, token.as_ref()).await {
        Ok(globals) => globals,
        Err(error) => {
            eprintln!("soulbox-interpreter: no variables: {error}");
            Variables::new()
        }
    }
}

fn refused(error: &batch::Error) -> Failure {
    let status = match error {
        batch::Error::UnknownLanguage { .. }
        | batch::Error::NotInstalled { .. }
        | batch::Error::Invalid(_) => StatusCode::BAD_REQUEST,
        batch::Error::Workspace(_) | batch::Error::Start(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::json(status, described(error))
}

fn described(error: &batch::Error) -> Value {
    let mut shown = json!({"code": error.code(), "message": error.to_string()});
    if let Some(installed) = error.installed() {
        shown["installed"] = json!(installed);
    }
    json!({"error": shown})
}
