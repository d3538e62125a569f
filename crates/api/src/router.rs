//! Every route of E2B's control plane.

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{delete, get, patch, post, put},
};
use http::StatusCode;
use soulbox_control::Control;

use crate::{
    broken, builds, cors,
    error::ApiError,
    events, execute, health, keys, sandboxes, secrets, snapshots, tags, team_metrics, teams,
    templates, trace,
    unsupported::{anywhere, gone},
    volume_content, volumes, webhooks,
};

#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// What answers carry as `domain` when the request's Host says nothing better; may have a
    /// port, e.g. `sbx.localhost:3443`.
    pub domain: String,
}

#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) control: Arc<Control>,
    pub(crate) config: Arc<ApiConfig>,
}

pub fn router(control: Arc<Control>, config: ApiConfig) -> Router {
    let app = App {
        control,
        config: Arc::new(config),
    };
    Router::new()
        .route("/health", get(health::health))
        .merge(sandbox_routes())
        .merge(template_routes())
        .merge(tenant_routes())
        .merge(kept_routes())
        .merge(event_routes())
        .merge(later_routes())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(cors::allow_every_origin))
        .layer(middleware::from_fn(trace::in_span))
        .with_state(app)
}

fn sandbox_routes() -> Router<App> {
    use sandboxes::{create, detail, fork, lifecycle, list, logs, metrics, network, rest};
    Router::new()
        .route("/sandboxes", post(create::v1).get(list::v1))
        .route("/v2/sandboxes", post(create::v2).get(list::v2))
        .route("/sandboxes/metrics", get(metrics::many))
        .route("/sandboxes/{id}", get(detail::get).delete(detail::kill))
        .route("/sandboxes/{id}/connect", post(rest::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(rest::connect_v2))
        .route("/sandboxes/{id}/resume", post(rest::resume))
        .route("/sandboxes/{id}/timeout", post(lifecycle::timeout))
        .route("/sandboxes/{id}/refreshes", post(lifecycle::refresh))
        .route("/sandboxes/{id}/network", put(network::replace))
        .route("/sandboxes/{id}/metrics", get(metrics::one))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
        .route("/sandboxes/{id}/pause", post(rest::pause))
        .route("/sandboxes/{id}/fork", post(fork::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/snapshots", get(snapshots::list))
        .route("/v1/broken", get(broken::list))
        .route("/v1/broken/{id}", delete(broken::discard))
        .route("/v1/broken/{id}/recover", post(broken::recover))
        .route("/v1/broken/{id}/disk", get(broken::disk))
        .route("/v1/sandboxes/{id}/execute", post(execute::execute))
        .route("/v1/sandboxes/{id}/languages", get(execute::languages))
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
    ApiError::not_found("there is no such route in the E2B API")
}

async fn wrong_method() -> ApiError {
    let message = "this route does not have this method";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
