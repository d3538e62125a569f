use std::{
    net::Ipv4Addr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use soulbox_runtime::{DynStream, Node, SandboxStatus, Waker};
use soulbox_types::{ENVD_PORT, SandboxState, Secret};

use crate::{
    Body, BoxError, ClientConnection, Counters, LogThrottle, StreamLimits,
    dial::dial,
    forward::Exchange,
    guard::is_control_route,
    ingress::{admit, has_token},
    refusal::{Audience, Refusal},
    route::{Route, Target, route},
    sandbox_tracker::{NotOpened, SandboxStreams, SandboxTracker, Stream},
    signature::SignedFile,
    stream_limiter::{StreamLimiter, StreamPermit},
    wake::{traffic_may_wake, wake},
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
    /// Of bodies from one sandbox, if they are empty; larger ones count less, the more they carry
    /// ([`soulbox_outgoing::ChunkThrottle`]).
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
    pub(crate) inner: Arc<Inner>,
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

    /// Whether what comes with it opens a sandbox: envd's token, or a signature for a file.
    pub fn is_confidential<B>(&self, request: &Request<B>) -> bool {
        match self.inner.route(request) {
            Route::To(target) => target.port == ENVD_PORT || has_token(request.headers()),
            Route::Signed(_) | Route::Token(_) => true,
            Route::NotOurs | Route::Bad(_) => false,
        }
    }

    /// Answers a request for which [`Proxy::claims`] is true. A body that ends with an error means
    /// that the client's connection (or HTTP/2 stream) must be aborted.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let audience = Audience::of(request.headers());
        let exchange = self.inner.exchange(request);
        self.inner.answer(audience, exchange).await
    }
}

impl Inner {
    /// Whatever comes of `exchange`, counted.
    pub(crate) async fn answer(
        &self,
        audience: Audience,
        exchange: impl Future<Output = Result<Response<Body>, Refusal>>,
    ) -> Response<Body> {
        self.counters.requests.fetch_add(1, Relaxed);
        match exchange.await {
            Ok(response) => response,
            Err(refusal) => {
                self.counters.refused.fetch_add(1, Relaxed);
                tracing::debug!(status = refusal.status().as_u16(), ?refusal, "refused");
                refusal.into_response(audience)
            }
        }
    }

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
            Route::Token(token) => self.owner(&token).ok_or(Refusal::UnknownToken)?,
            Route::Bad(text) => return Err(Refusal::BadRequest(text)),
            Route::NotOurs => return Err(Refusal::BadRequest("no sandbox is named by this host")),
        };
        let path = request.uri().path();
        if target.port == ENVD_PORT && is_control_route(path) {
            return Err(Refusal::ControlRoute {
                path: path.to_owned(),
            });
        }
        let may_wake = |status: &_| traffic_may_wake(status, &target, request.headers());
        let stream = self.open(&target, may_wake).await?;
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

    /// A stream of a running sandbox; one that sleeps is woken for it.
    pub(crate) async fn open(
        &self,
        target: &Target,
        may_wake: impl FnOnce(&SandboxStatus) -> bool,
    ) -> Result<Stream, Refusal> {
        let limit = self.config.max_streams_per_sandbox;
        let mut opened = self.sandboxes.open(&target.id, limit);
        if matches!(opened, Err(NotOpened::NotRunning)) {
            wake(&*self.node, self.waker.as_deref(), target, may_wake).await?;
            opened = self.sandboxes.open(&target.id, limit);
        }
        opened.map_err(|not| match not {
            NotOpened::NotRunning => Refusal::NotFound(target.id.clone()),
            NotOpened::TooMany => Refusal::TooManyStreams(target.id.clone()),
        })
    }

    pub(crate) async fn connect(
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
            self.counters.streams_refused.fetch_add(1, Relaxed);
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

    fn owner(&self, token: &Secret) -> Option<Target> {
        let status = self.node.statuses().of_access_token(token.expose())?;
        Some(Target {
            id: status.spec.id.clone(),
            port: ENVD_PORT,
        })
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
