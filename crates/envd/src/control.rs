//! The small routes: health, metrics, variables, and `/init`, by which the node changes settings.

mod init;

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use http::{HeaderValue, Response, StatusCode, header};

pub(crate) use self::init::init;
use crate::{
    http::{
        body::Body,
        reply::{self, Failure},
    },
    process,
    state::Envd,
};

pub(crate) fn health() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Starts a program as the default user would, before there is one.
pub(crate) async fn warm_up(envd: &Envd) -> Result<Response<Body>, Failure> {
    let failed = |error: String| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error);
    let user = envd.user(None).map_err(|error| failed(error.to_string()))?;
    process::warm_up(envd, &user)
        .await
        .map_err(|error| failed(error.to_string()))?;
    Ok(health())
}

pub(crate) fn metrics(envd: &Envd) -> Response<Body> {
    let sample = envd.metrics.sample();
    reply::json(
        StatusCode::OK,
        serde_json::to_vec(&sample).unwrap_or_default(),
    )
}

pub(crate) fn envs(envd: &Envd) -> Response<Body> {
    let env = envd.settings.borrow().env();
    reply::json(StatusCode::OK, serde_json::to_vec(&env).unwrap_or_default())
}

/// Files for programs that did not get the environment, such as cron's or another login's.
pub(crate) fn write_marker_files(sandbox_id: &str, template_id: &str) -> io::Result<()> {
    let directory = Path::new("/run/e2b");
    fs::create_dir_all(directory)?;
    let files = [
        (".E2B_SANDBOX", "true"),
        (".E2B_SANDBOX_ID", sandbox_id),
        (".E2B_TEMPLATE_ID", template_id),
    ];
    for (name, value) in files {
        replace_file(&directory.join(name), value)?;
    }
    Ok(())
}

/// What was there is not opened: it may be a FIFO by now, on which we would wait for ever.
fn replace_file(path: &Path, content: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(path)?
        .write_all(content.as_bytes())
}
