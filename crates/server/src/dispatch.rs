//! Each request goes to the proxy (traffic of sandboxes) or to the control plane (E2B's REST API).

use std::time::Instant;

use axum::Router;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use soulbox_acme::Tokens;
use soulbox_proxy::{Body, ClientConnection, Proxy};
use tower::ServiceExt;
use tracing::Instrument;

use crate::{
    connections::Transport,
    metrics::{Metrics, Route},
    request_body::RequestBody,
};

#[derive(Debug, Clone)]
pub(crate) struct Dispatch {
    pub(crate) proxy: Proxy,
    pub(crate) api: Router,
    pub(crate) metrics: Metrics,
    /// While a certificate is asked for by HTTP-01.
    pub(crate) challenges: Option<Tokens>,
}

impl Dispatch {
    pub(crate) async fn handle(
        &self,
        request: Request<Incoming>,
        client: ClientConnection,
        transport: Transport,
    ) -> Response<Body> {
        let (request, waiting) = RequestBody::wrap(request);
        let mut response = self.answer(request, client, transport).await;
        if let Some(waiting) = waiting {
            waiting.settle(&mut response);
        }
        response
    }

    async fn answer(
        &self,
        mut request: Request<RequestBody>,
        client: ClientConnection,
        transport: Transport,
    ) -> Response<Body> {
        let started = Instant::now();
        let method = request.method().clone();
        request.extensions_mut().insert(client);
        if client.tls {
            request.extensions_mut().insert(soulbox_api::OverTls);
        }
        let is_sandboxes = self.proxy.claims(&request);
        let challenge = self.challenges.as_ref().filter(|_| !is_sandboxes);
        if let Some(answer) = challenge.and_then(|tokens| tokens.answer(request.uri().path())) {
            return text(StatusCode::OK, answer);
        }
        let route_of_api = || Route::of_api(&method, request.uri().path());
        let (route, response) = if transport == Transport::PlainOnTlsPort
            && (!is_sandboxes || self.proxy.is_confidential(&request))
        {
            // A key or token that works without TLS would never be noticed.
            let route = if is_sandboxes {
                Route::Proxy
            } else {
                route_of_api()
            };
            (route, to_https(&request))
        } else if is_sandboxes {
            // Path and query of traffic to sandboxes are private: not logged.
            let span = tracing::debug_span!("proxy", %method, host = host(&request));
            let answer = async {
                let response = self.proxy.handle(request).await;
                let ms = started.elapsed().as_millis();
                tracing::debug!(status = response.status().as_u16(), ms, "answered");
                response
            };
            (Route::Proxy, answer.instrument(span).await)
        } else {
            (route_of_api(), self.control_plane(request).await)
        };
        self.metrics
            .request(route, &method, response.status(), started.elapsed());
        response
    }

    async fn control_plane(&self, mut request: Request<RequestBody>) -> Response<Body> {
        // HTTP/2 has the host in the target. Handlers only look at the header.
        let authority = request
            .uri()
            .authority()
            .map(|authority| authority.as_str().to_owned());
        if let Some(host) = authority.and_then(|host| HeaderValue::from_str(&host).ok()) {
            request.headers_mut().insert(header::HOST, host);
        }
        // For the route that opens ports.
        request.extensions_mut().insert(self.proxy.clone());
        let answer = self
            .api
            .clone()
            .oneshot(request.map(axum::body::Body::new))
            .await;
        let response = answer.unwrap_or_else(|never| match never {});
        response.map(|body| body.map_err(Into::into).boxed_unsync())
    }
}

/// The same request with TLS, on the same port.
fn to_https<B>(request: &Request<B>) -> Response<Body> {
    let authority = request
        .uri()
        .authority()
        .map(http::uri::Authority::as_str)
        .or_else(|| request.headers().get(header::HOST)?.to_str().ok())
        .unwrap_or_default();
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let location = HeaderValue::from_str(&format!("https://{authority}{path}"));
    let told = "this port speaks HTTPS: use https:// in the address\n";
    let mut response = text(StatusCode::BAD_REQUEST, told);
    match location {
        Ok(location) if !authority.is_empty() => {
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(header::LOCATION, location);
        }
        _ => {}
    }
    response
}

fn text(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<Body> {
    let body = Full::from(text.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}

fn host<B>(request: &Request<B>) -> &str {
    request
        .uri()
        .host()
        .or_else(|| request.headers().get(header::HOST)?.to_str().ok())
        .unwrap_or_default()
}
