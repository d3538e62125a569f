//! One sandbox, reached through the server's proxy: envd's processes and files.

use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use hyper::body::Incoming;
use serde::{Serialize, de::DeserializeOwned};
use soulbox_envd_protocol::{Encoding, ErrorBody, call_headers, frames, stream_headers};
use soulbox_types::{ENVD_PORT, Secret};
use tokio::time::timeout;

use crate::{
    Error, Result, RpcError, api,
    base_url::BaseUrl,
    transport::{self, Answer, Body, Transport},
};

pub mod code;
pub mod files;
pub mod input;
pub mod process;
mod stream;

pub use stream::Messages;

const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long we wait without a keepalive on an idle stream.
const IDLE_LIMIT: Duration = Duration::from_secs(75);

#[derive(Debug, Clone)]
pub struct Envd {
    transport: Transport,
    base: BaseUrl,
    id: String,
    token: Option<Secret>,
    /// The account inside; `None`: the template's default.
    user: Option<String>,
}

impl Envd {
    pub(crate) fn new(
        transport: Transport,
        base: BaseUrl,
        id: &str,
        token: Option<Secret>,
    ) -> Self {
        Self {
            transport,
            base,
            id: id.to_owned(),
            token,
            user: None,
        }
    }

    /// Acts as another account inside the sandbox.
    #[must_use]
    pub fn as_user(mut self, user: Option<String>) -> Self {
        self.user = user;
        self
    }

    pub fn sandbox_id(&self) -> &str {
        &self.id
    }

    fn request(&self, method: Method, path: &str) -> Result<request::Builder> {
        self.request_to(ENVD_PORT, method, path)
    }

    fn request_to(&self, port: u16, method: Method, path: &str) -> Result<request::Builder> {
        let invalid = |what: &str| Error::protocol(format!("{what} cannot be sent in a header"));
        let uri = self
            .base
            .join(path)
            .map_err(|error| Error::protocol(error.to_string()))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header("e2b-sandbox-id", &self.id)
            .header("e2b-sandbox-port", port);
        if let Some(host) = self.base.routing_host() {
            request = request.header(header::HOST, host);
        }
        if let Some(token) = &self.token {
            let mut token =
                HeaderValue::try_from(token.expose()).map_err(|_| invalid("the access token"))?;
            token.set_sensitive(true);
            request = request.header("x-access-token", token);
        }
        Ok(request)
    }

    /// A request to one of envd's procedures.
    fn rpc(&self, procedure: &str, encoding: Encoding) -> Result<request::Builder> {
        let request = self.request(Method::POST, &format!("/{procedure}"))?;
        let user = self.user.as_deref().unwrap_or_default();
        Ok(call_headers(request, encoding, user))
    }

    async fn unary<T: DeserializeOwned>(
        &self,
        procedure: &str,
        message: &impl Serialize,
        what: &'static str,
    ) -> Result<T> {
        let request = self
            .rpc(procedure, Encoding::Unary)?
            .body(transport::full(encode(message)?))
            .map_err(|error| Error::protocol(error.to_string()))?;
        let answer = self.transport.unary(request, what, CALL_LIMIT).await?;
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        serde_json::from_slice(&answer.body).map_err(|error| Error::protocol(error.to_string()))
    }

    /// A server stream. `limit`: when envd is to end the process or stream.
    async fn stream(
        &self,
        procedure: &str,
        message: &impl Serialize,
        limit: Option<Duration>,
        more: &[(&'static str, &'static str)],
    ) -> Result<Messages> {
        let request = self.rpc(procedure, Encoding::Stream)?;
        let mut request = stream_headers(request, limit.filter(|limit| !limit.is_zero()));
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let request = request
            .body(transport::full(frame(message)?))
            .map_err(|error| Error::protocol(error.to_string()))?;
        let response = self.open(request, "starting the stream").await?;
        Ok(Messages::new(response.into_body(), self.id.clone()))
    }

    /// The head of an answer, or the refusal that it is.
    async fn open(&self, request: Request<Body>, what: &'static str) -> Result<Response<Incoming>> {
        let origin = transport::origin(request.uri());
        let exchange = async {
            let response = self.transport.open(request).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            Err(self.refused(&transport::collect(origin, response).await?))
        };
        let limit = CALL_LIMIT;
        timeout(limit, exchange)
            .await
            .map_err(|_| Error::Timeout { what, limit })?
    }

    /// An HTTP error has one of three speakers: the proxy (502), envd's procedures (a Connect
    /// body) or envd's plain endpoints (E2B's body).
    fn refused(&self, answer: &Answer) -> Error {
        let refusal = api::refusal(answer);
        if answer.status == StatusCode::BAD_GATEWAY && refusal.message.contains("was not found") {
            return Error::SandboxGone {
                id: self.id.clone(),
            };
        }
        match serde_json::from_slice::<ErrorBody>(&answer.body) {
            Ok(wire) => Error::Rpc(wire.into()),
            Err(_) => Error::Api(refusal),
        }
    }
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(message).map_err(|error| Error::protocol(error.to_string()))
}

impl From<ErrorBody> for RpcError {
    fn from(wire: ErrorBody) -> Self {
        Self {
            code: wire.code,
            message: wire.message,
        }
    }
}

/// A message of a request's stream.
fn frame(message: &impl Serialize) -> Result<bytes::Bytes> {
    frames::encode(&encode(message)?)
        .ok_or_else(|| Error::protocol("a message that is too long to send"))
}
