//! E2B's protocol, and what we added to it at its own paths.
//!
//! One file per resource; each only translates. `error` is the one map from errors to HTTP.
//!
//! # Layout
//! - `sandboxes`, `snapshots`, `templates`, `tags`, `builds`, `keys`, `teams`: the resources
//! - `secrets`, `volumes`, `volume_content`: what tenants keep between sandboxes
//! - `events`, `webhooks`, `team_metrics`: what happened
//! - `domain`: under which name sandboxes are reached
//! - `unsupported`: what is not built yet says so

mod builds;
mod domain;
pub(crate) mod error;
mod events;
mod health;
mod keys;
pub(crate) mod sandboxes;
mod secrets;
mod snapshots;
mod tags;
mod team_metrics;
mod teams;
mod templates;
mod unsupported;
mod volume_content;
mod volumes;
mod webhooks;

use axum::{
    Router,
    routing::{delete, get, patch, post, put},
};
use soulbox_control::ErrorCode;

use self::unsupported::{anywhere, gone};
use crate::{
    router::App,
    shared::error::{ApiError, speaking, wrong_method},
};

/// Also what is asked for at no known path.
pub(crate) fn routes() -> Router<App> {
    let routes = Router::new()
        .route("/health", get(health::health))
        .merge(sandbox_routes())
        .merge(template_routes())
        .merge(tenant_routes())
        .merge(kept_routes())
        .merge(event_routes())
        .merge(later_routes())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method);
    speaking(routes, error::respond)
}

fn sandbox_routes() -> Router<App> {
    use sandboxes::{create, detail, fork, lifecycle, list, logs, metrics, network, pause};
    Router::new()
        .route("/sandboxes", post(create::v1).get(list::v1))
        .route("/v2/sandboxes", post(create::v2).get(list::v2))
        .route("/sandboxes/metrics", get(metrics::many))
        .route("/sandboxes/{id}", get(detail::get).delete(detail::kill))
        .route("/sandboxes/{id}/connect", post(pause::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(pause::connect_v2))
        .route("/sandboxes/{id}/resume", post(pause::resume))
        .route("/sandboxes/{id}/timeout", post(lifecycle::timeout))
        .route("/sandboxes/{id}/refreshes", post(lifecycle::refresh))
        .route("/sandboxes/{id}/network", put(network::replace))
        .route("/sandboxes/{id}/metrics", get(metrics::one))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
        .route("/sandboxes/{id}/pause", post(pause::pause))
        .route("/sandboxes/{id}/fork", post(fork::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/snapshots", get(snapshots::list))
}

fn template_routes() -> Router<App> {
    Router::new()
        .route("/templates", get(templates::list).post(gone))
        .route("/v2/templates", get(templates::list_pages).post(gone))
        .route("/default-templates", get(templates::list_default))
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route("/templates/tags", post(tags::assign).delete(tags::remove))
        .route(
            "/templates/{id}",
            get(templates::get)
                .delete(templates::delete)
                .patch(templates::patch_v1)
                .post(gone),
        )
        .route("/v2/templates/{id}", patch(templates::patch_v2))
        .route("/templates/{id}/tags", get(tags::list))
        .route("/templates/{id}/tags/count", get(tags::count))
        .route("/templates/{id}/tags/exists", get(tags::exists))
        .route("/templates/{id}/builds/{build}/status", get(builds::status))
        .route("/templates/{id}/builds/{build}/logs", get(builds::logs))
        .route("/v3/templates", post(builds::ask))
        .route(
            "/templates/{id}/files/{hash}",
            get(builds::link).put(builds::upload),
        )
        .route(
            "/templates/{id}/builds/{build}",
            post(gone).delete(builds::cancel),
        )
        .route("/v2/templates/{id}/builds/{build}", post(builds::start))
        .route("/templates/builtin/{name}", post(builds::builtin))
        .route("/templates/{id}/tags/groups", get(tags::groups))
        .route(
            "/templates/{id}/tags/{tag}/assignments",
            get(tags::assignments),
        )
}

fn tenant_routes() -> Router<App> {
    Router::new()
        .route("/teams", get(teams::list))
        .route("/api-keys", get(keys::list).post(keys::create))
        .route("/api-keys/{id}", delete(keys::delete).patch(keys::rename))
}

/// What tenants keep between sandboxes.
fn kept_routes() -> Router<App> {
    Router::new()
        .route("/secrets", get(secrets::list).post(secrets::create))
        .route(
            "/secrets/{id}",
            get(secrets::get)
                .post(secrets::update)
                .delete(secrets::delete),
        )
        .route("/volumes", get(volumes::list).post(volumes::create))
        .route("/volumes/{id}", get(volumes::get).delete(volumes::delete))
        .route(
            "/volumecontent/{id}/path",
            get(volume_content::stat)
                .patch(volume_content::change)
                .delete(volume_content::remove),
        )
        .route(
            "/volumecontent/{id}/dir",
            get(volume_content::list).post(volume_content::make_directory),
        )
        .route(
            "/volumecontent/{id}/file",
            get(volume_content::read).put(volume_content::write),
        )
}

fn event_routes() -> Router<App> {
    Router::new()
        .route("/events/sandboxes", get(events::all))
        .route("/events/sandboxes/{id}", get(events::of_sandbox))
        .route(
            "/events/webhooks",
            get(webhooks::list).post(webhooks::create),
        )
        .route(
            "/events/webhooks/{id}",
            get(webhooks::get)
                .patch(webhooks::update)
                .delete(webhooks::delete),
        )
        .route("/teams/{id}/metrics", get(team_metrics::list))
        .route("/teams/{id}/metrics/max", get(team_metrics::max))
}

/// What is not built yet. Each one says so to whoever has a key.
fn later_routes() -> Router<App> {
    let tokens = || anywhere("an access token", "use an API key");
    let nodes = || anywhere("managing nodes over HTTP", "use `soulbox` on the server");
    Router::new()
        .route("/access-tokens", tokens())
        .route("/access-tokens/{id}", tokens())
        .route("/nodes", nodes())
        .route("/nodes/{id}", nodes())
        .route("/admin/{*rest}", nodes())
}

async fn unknown_route() -> ApiError {
    let message = "there is no such route in the E2B API";
    ApiError::new(ErrorCode::RouteNotFound, message)
}
