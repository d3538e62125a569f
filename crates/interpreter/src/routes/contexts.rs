//! `/contexts`: create, list, restart, remove.

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;

use crate::{
    context::Context,
    http::{
        body::{self, Body},
        reply::{self, Failure},
        schema::Fields,
    },
    language::Language,
    server::Server,
};

#[derive(Serialize)]
struct ContextInfo<'a> {
    id: &'a str,
    language: &'a str,
    cwd: &'a str,
}

impl<'a> From<&'a Context> for ContextInfo<'a> {
    fn from(context: &'a Context) -> Self {
        Self {
            id: &context.id,
            language: context.language.name(),
            cwd: &context.cwd,
        }
    }
}

pub(crate) fn list(server: &Server) -> Response<Body> {
    let contexts = server.contexts.list();
    let shown: Vec<ContextInfo<'_>> = contexts
        .iter()
        .map(|context| ContextInfo::from(&**context))
        .collect();
    reply::json(&shown)
}

pub(crate) async fn create(
    server: &Server,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let mut fields = Fields::parse(&body::read(request).await?)?;
    let language = fields
        .optional_text("language")
        .filter(|language| !language.trim().is_empty());
    let cwd = fields.optional_text("cwd");
    fields.finish()?;
    let language = language.map_or_else(Language::python, |name| Language::new(&name));
    let context = server.contexts.create(language, cwd).await?;
    Ok(reply::json(&ContextInfo::from(&*context)))
}

pub(crate) async fn restart(server: &Server, id: &str) -> Result<Response<Body>, Failure> {
    let context = server.contexts.find(id)?;
    if let Err(error) = context.restart().await {
        eprintln!("soulbox-interpreter: restart of {id}: {error}");
        return Err(Failure::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Failed to restart context {id}"),
        ));
    }
    Ok(reply::json(&()))
}

pub(crate) fn remove(server: &Server, id: &str) -> Result<Response<Body>, Failure> {
    server.contexts.remove(id)?;
    Ok(reply::json(&()))
}
