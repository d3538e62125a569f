//! The handle to one sandbox's envd.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header, request};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use soulbox_envd_protocol::{Encoding, call_headers};
use soulbox_types::{ENVD_PORT, NODE_TOKEN_HEADER, SandboxSpec, Secret};
use tokio::time::timeout;

use crate::{
    Dial, Error, Result,
    exchange::{self, Body, CALL_LIMIT, Exchange},
};

/// More than envd's own limit. A warm-up is optional: without it the first start is only slower.
const WARM_UP_LIMIT: Duration = Duration::from_secs(8);

/// A sandbox's envd, reached from the host. Cheap to clone; every call has its own connection.
#[derive(Clone)]
pub struct EnvdClient {
    dial: Arc<dyn Dial>,
    node_token: Secret,
    access_token: Option<Secret>,
    pub(crate) start_limit: Duration,
}

impl fmt::Debug for EnvdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvdClient").finish_non_exhaustive()
    }
}

/// New settings of a running envd, for the processes that are started from now on.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitUpdate {
    /// What clients must show. `None` opens the sandbox to everybody: it is not "as before".
    pub access_token: Option<Secret>,
    /// The template's and the caller's variables together; they replace all that were set.
    /// `None`: as before. So it is with everything below.
    #[serde(rename = "envVars", skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Empty: the default user's home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_id: Option<String>,
    /// What `/metrics` reports as the totals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

impl EnvdClient {
    /// With the tokens that this sandbox was made with. After an [`InitUpdate`] with another access
    /// token, make another handle.
    pub fn new(dial: Arc<dyn Dial>, spec: &SandboxSpec) -> Self {
        Self::with_tokens(dial, spec.node_token.clone(), spec.access_token.clone())
    }

    pub fn with_tokens(
        dial: Arc<dyn Dial>,
        node_token: Secret,
        access_token: Option<Secret>,
    ) -> Self {
        Self {
            dial,
            node_token,
            access_token,
            start_limit: CALL_LIMIT,
        }
    }

    /// How long it may take until a command runs, for callers with somebody who waits.
    #[must_use]
    pub fn starting_within(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// Changes envd's settings, all at once. Processes that run already keep what they have.
    pub async fn init(&self, update: &InitUpdate) -> Result<()> {
        let what = "setting up envd";
        let body = encode(update)?;
        let request = self
            .control(Method::POST, "/init")?
            .header(header::CONTENT_TYPE, "application/json");
        let exchange = self.call(request, full(body), what, CALL_LIMIT).await?;
        exchange.whole(what).await.map(drop)
    }

    /// Runs a program once, so that the next start finds everything in the page cache.
    pub async fn warm_up(&self) -> Result<()> {
        let what = "warming up";
        let request = self.control(Method::POST, "/soulbox/rehearse")?;
        let exchange = self
            .call(request, full(Vec::new()), what, WARM_UP_LIMIT)
            .await?;
        exchange.whole(what).await.map(drop)
    }

    /// A request to a route that is the node's own.
    pub(crate) fn control(&self, method: Method, path: &str) -> Result<request::Builder> {
        let token = sensitive(self.node_token.expose())?;
        Ok(base(method, path).header(NODE_TOKEN_HEADER, token))
    }

    /// A request to one of E2B's procedures, as an account inside.
    pub(crate) fn procedure(
        &self,
        name: &str,
        user: &str,
        encoding: Encoding,
    ) -> Result<request::Builder> {
        let request = base(Method::POST, &format!("/process.Process/{name}"));
        let request = call_headers(request, encoding, user);
        Ok(match &self.access_token {
            Some(token) => request.header("x-access-token", sensitive(token.expose())?),
            None => request,
        })
    }

    /// The head of an answer, once envd has agreed.
    pub(crate) async fn call(
        &self,
        request: request::Builder,
        body: Body,
        what: &'static str,
        limit: Duration,
    ) -> Result<Exchange> {
        let request: Request<Body> = request.body(body).map_err(Error::protocol)?;
        timeout(limit, async {
            let stream = self
                .dial
                .dial(ENVD_PORT)
                .await
                .map_err(Error::Unreachable)?;
            exchange::send(stream, request, what)
                .await?
                .accepted(what)
                .await
        })
        .await
        .unwrap_or(Err(Error::TooSlow { what, limit }))
    }
}

pub(crate) fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(message).map_err(Error::protocol)
}

fn base(method: Method, path: &str) -> request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
}

fn sensitive(token: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::try_from(token)
        .map_err(|_| Error::protocol("a token cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}
