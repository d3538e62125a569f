//! `POST /execute`: a cell in a context, its events line by line.

use std::rc::Rc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::{
    http::{
        body::{self, Body},
        reply::Failure,
        schema::Fields,
    },
    language::Language,
    run,
    server::Server,
};

/// Few: lines that the client does not take hold up the kernel, not our memory.
const LINES_AHEAD: usize = 4;

pub(crate) async fn handle(
    server: Rc<Server>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let token = request.headers().get("X-Access-Token").cloned();
    let mut fields = Fields::parse(&body::read(request).await?)?;
    let code = fields.required_text("code");
    let context = fields.optional_text("context_id");
    let language = fields
        .optional_text("language")
        .filter(|language| !language.trim().is_empty());
    let variables = fields.optional_texts("env_vars");
    fields.finish()?;

    let context = match (context, language) {
        (Some(_), Some(_)) => {
            return Err(Failure::text(
                StatusCode::BAD_REQUEST,
                "Only one of context_id or language can be provided",
            ));
        }
        (Some(id), None) => server.contexts.find(&id)?,
        (None, language) => {
            let language = language.map_or_else(Language::python, |name| Language::new(&name));
            server.contexts.default(&language).await?
        }
    };
    let (lines, answer) = mpsc::channel(LINES_AHEAD);
    let request = run::Request {
        code,
        variables,
        token,
        envd_port: server.options.envd_port,
    };
    tokio::task::spawn_local(run::run(context, request, lines));
    Ok(Response::new(Body::Lines(answer)))
}
