use std::{
    net::Ipv4Addr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use soulbox_runtime::{DynStream, Node, Waker};
use soulbox_types::{ENVD_PORT, SandboxState};

use crate::{
    Body, BoxError, ClientConnection, Counters, LogThrottle, StreamLimits,
    dial::dial,
    forward::Exchange,
    guard::is_control_route,
    ingress::admit,
    refusal::{Audience, Refusal},
    route::{Route, Target, route},
    sandbox_tracker::{NotOpened, SandboxStreams, SandboxTracker},
    signature::SignedFile,
    stream_limiter::{StreamLimiter, StreamPermit},
    wake::wake,
};

#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Without port: `sbx.localhost`. Sandboxes are found under any domain; this one is also a
    /// shared host, where routing headers decide.
    pub domain: String,
    /// A stream on which nothing moves for so long is cut. E2B's clients rely on at least 620 s.
    pub idle_timeout: Duration,
    /// Streams that one sandbox may have open at a time.
    pub max_streams_per_sandbox: usize,
    /// Of all sandboxes together.
    pub stream_limits: StreamLimits,
    /// Of bodies from one sandbox: chunks so small that passing them on costs more than their bytes.
    pub small_chunks_per_second: u32,
}

impl ProxyConfig {
    pub fn new(domain: impl Into<String>) -> Self {
        Self {
            domain: domain.into().to_ascii_lowercase(),
            idle_timeout: Duration::from_hours(1),
            max_streams_per_sandbox: 2048,
            stream_limits: StreamLimits::default(),
            small_chunks_per_second: 20_000,
        }
    }
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Proxy {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: ProxyConfig,
    pub(crate) node: Arc<dyn Node>,
    waker: Option<Arc<dyn Waker>>,
    pub(crate) sandboxes: SandboxTracker,
    streams: StreamLimiter,
    refused_streams: LogThrottle,
    failed_dials: LogThrottle,
    pub(crate) counters: Arc<Counters>,
}

impl Proxy {
    /// Must be called within a tokio runtime: it watches the node for sandboxes that end.
    pub fn new(node: Arc<dyn Node>, config: ProxyConfig) -> Self {
        Self::with_waker(node, None, config)
    }

    /// `waker` wakes a paused sandbox for traffic; without one the node does.
    pub fn with_waker(
        node: Arc<dyn Node>,
        waker: Option<Arc<dyn Waker>>,
        config: ProxyConfig,
    ) -> Self {
        let sandboxes = SandboxTracker::watch(Arc::clone(&node), config.small_chunks_per_second);
        let streams = StreamLimiter::new(config.stream_limits);
        Self {
            inner: Arc::new(Inner {
                config,
                node,
                waker,
                sandboxes,
                streams,
                refused_streams: LogThrottle::default(),
                failed_dials: LogThrottle::default(),
                counters: Arc::default(),
            }),
        }
    }

    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Whether this is traffic for a sandbox. Everything else is for the control plane.
    pub fn claims<B>(&self, request: &Request<B>) -> bool {
        self.inner.route(request) != Route::NotOurs
    }

    /// Answers a request for which [`Proxy::claims`] is true. A body that ends with an error means
    /// that the client's connection (or HTTP/2 stream) must be aborted.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        self.inner.counters.requests.fetch_add(1, Relaxed);
        let audience = Audience::of(request.headers());
        match self.inner.exchange(request).await {
            Ok(response) => response,
            Err(refusal) => {
                self.inner.counters.refused.fetch_add(1, Relaxed);
                tracing::debug!(status = refusal.status().as_u16(), ?refusal, "refused");
                refusal.into_response(audience)
            }
        }
    }
}

impl Inner {
    fn route<B>(&self, request: &Request<B>) -> Route {
        route(
            &self.config.domain,
            request.method(),
            request.uri(),
            request.headers(),
        )
    }

    async fn exchange<B>(self: &Arc<Self>, request: Request<B>) -> Result<Response<Body>, Refusal>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        if request.method() == Method::CONNECT {
            return Err(Refusal::BadRequest("CONNECT is not supported"));
        }
        let target = match self.route(&request) {
            Route::To(target) => target,
            Route::Signed(file) => self.signer(&file).ok_or(Refusal::BadSignature)?,
            Route::Bad(text) => return Err(Refusal::BadRequest(text)),
            Route::NotOurs => return Err(Refusal::BadRequest("no sandbox is named by this host")),
        };
        let path = request.uri().path();
        if target.port == ENVD_PORT && is_control_route(path) {
            return Err(Refusal::ControlRoute {
                path: path.to_owned(),
            });
        }
        let limit = self.config.max_streams_per_sandbox;
        let mut opened = self.sandboxes.open(&target.id, limit);
        if matches!(opened, Err(NotOpened::NotRunning)) {
            wake(
                &*self.node,
                self.waker.as_deref(),
                &target,
                request.headers(),
            )
            .await?;
            opened = self.sandboxes.open(&target.id, limit);
        }
        let stream = opened.map_err(|not| match not {
            NotOpened::NotRunning => Refusal::NotFound(target.id.clone()),
            NotOpened::TooMany => Refusal::TooManyStreams(target.id.clone()),
        })?;
        let status = self.node.get(&target.id);
        let status = status.ok_or_else(|| Refusal::NotFound(target.id.clone()))?;
        let ingress = admit(&status.spec, &target, request.headers())?;
        let client = request.extensions().get::<ClientConnection>().copied();
        let (connection, permit) = self.connect(&target, &stream.sandbox, client).await?;
        Exchange {
            proxy: Arc::clone(self),
            target,
            stream,
            ingress,
            connection,
            permit,
        }
        .run(request)
        .await
    }

    async fn connect(
        &self,
        target: &Target,
        sandbox: &SandboxStreams,
        client: Option<ClientConnection>,
    ) -> Result<(DynStream, StreamPermit), Refusal> {
        let client = client.map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.address.ip());
        let permit = tokio::select! {
            biased;
            () = sandbox.ended().cancelled() => return Err(Refusal::NotFound(target.id.clone())),
            permit = self.streams.acquire(client) => permit,
        };
        let Some(mut permit) = permit else {
            self.counters.crowded_out.fetch_add(1, Relaxed);
            if let Some(suppressed) = self.refused_streams.should_log() {
                tracing::warn!(
                    sandbox_id = %target.id,
                    %client,
                    streams = self.counters.snapshot().open,
                    suppressed,
                    "refused a stream: too many are open, or too many of this client. A higher \
                     limit of open files (LimitNOFILE, ulimit -n) allows more"
                );
            }
            return Err(Refusal::TooManyOpen(target.id.clone()));
        };
        let connection = dial(&*self.node, target, sandbox, &self.failed_dials).await?;
        permit.opened();
        Ok((connection, permit))
    }

    fn signer(&self, file: &SignedFile) -> Option<Target> {
        let check = file.check()?;
        let status = self.node.list().into_iter().find(|status| {
            status.state == SandboxState::Running
                && status
                    .spec
                    .access_token
                    .as_ref()
                    .is_some_and(|token| check.made_with(token))
        })?;
        Some(Target {
            id: status.spec.id.clone(),
            port: ENVD_PORT,
        })
    }
}
