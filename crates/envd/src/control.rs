//! The small routes: health, metrics, variables, and `/init`, by which the node changes settings.

mod init;

use http::{HeaderValue, Response, StatusCode, header};

pub(crate) use self::init::init;
use crate::{
    http::{body::Body, reply},
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
pub(crate) fn write_marker_files(sandbox_id: &str, template_id: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let directory = std::path::Path::new("/run/e2b");
    std::fs::create_dir_all(directory)?;
    let files = [
        (".E2B_SANDBOX", "true"),
        (".E2B_SANDBOX_ID", sandbox_id),
        (".E2B_TEMPLATE_ID", template_id),
    ];
    for (name, value) in files {
        let path = directory.join(name);
        std::fs::write(&path, value)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444))?;
    }
    Ok(())
}
