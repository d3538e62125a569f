//! Who handles the requests: clients and operators use different listeners.

use axum::Router;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use soulbox_proxy::{Body, ClientConnection};
use tower::ServiceExt;

use super::Transport;
use crate::dispatch::Dispatch;

#[derive(Debug, Clone)]
pub(crate) enum Handler {
    Clients(Dispatch),
    Operators(Router),
}

impl Handler {
    pub(super) async fn handle(
        &self,
        request: Request<Incoming>,
        client: ClientConnection,
        transport: Transport,
    ) -> Response<Body> {
        match self {
            Self::Clients(dispatch) => dispatch.handle(request, client, transport).await,
            Self::Operators(router) => {
                let answer = router.clone().oneshot(request).await;
                let response = answer.unwrap_or_else(|never| match never {});
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
        }
    }
}
