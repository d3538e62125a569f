//! Raw bytes to a port of a sandbox, whatever protocol it speaks: for the owner, who needs no host name
//! and no certificate for it.
//!
//! The caller has shown that the sandbox is its own. So neither the traffic token nor envd's is asked
//! for; limits, waking and the end of the stream are those of all traffic.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, Response, Version};
use soulbox_types::{ENVD_PORT, SandboxId};

use crate::{
    Body, ClientConnection, Proxy,
    activity::{Activity, Metered},
    body::OpenStream,
    forward::switching,
    headers,
    proxy::Inner,
    refusal::{Audience, Refusal},
    route::Target,
    tunnel::Tunnel,
};

/// What a client asks to switch to.
pub const PORT_PROTOCOL: &str = "tcp";

/// Whether a request asks to become a stream of raw bytes. HTTP/2 has no upgrades.
pub fn asks_for_port(version: Version, headers: &HeaderMap) -> bool {
    let protocol = headers::upgrade(headers).filter(|_| version == Version::HTTP_11);
    protocol.is_some_and(|protocol| {
        protocol
            .as_bytes()
            .eq_ignore_ascii_case(PORT_PROTOCOL.as_bytes())
    })
}

impl Proxy {
    /// Turns a request that [asks for it](asks_for_port) into a connection to a port inside. The caller
    /// has checked that the sandbox belongs to whoever asks.
    pub async fn tunnel<B>(&self, id: SandboxId, port: u16, request: Request<B>) -> Response<Body> {
        let target = Target { id, port };
        let opening = self.inner.open_port(target, request);
        self.inner.answer(Audience::Program, opening).await
    }
}

impl Inner {
    async fn open_port<B>(
        &self,
        target: Target,
        mut request: Request<B>,
    ) -> Result<Response<Body>, Refusal> {
        // envd has routes that no client may reach, and in raw bytes they cannot be told apart.
        if target.port == 0 || target.port == ENVD_PORT {
            return Err(Refusal::BadRequest("this port cannot be forwarded"));
        }
        let stream = self.open(&target, |_| true).await?;
        let client = request.extensions().get::<ClientConnection>().copied();
        let (connection, permit) = self.connect(&target, &stream.sandbox, client).await?;
        let activity = Activity::new();
        let permit = Arc::new(permit);
        let connection = Metered::new(
            connection,
            Arc::clone(&permit),
            Arc::clone(&activity),
            Arc::clone(&self.counters),
        );
        let tunnel = Tunnel {
            id: target.id,
            client: hyper::upgrade::on(&mut request),
            ended: stream.sandbox.ended().clone(),
            activity,
            idle_limit: self.config.idle_timeout,
            open: OpenStream::new(Arc::clone(&self.counters), stream, permit, None),
        };
        tokio::spawn(tunnel.run(std::future::ready(Ok(connection))));
        let protocol = HeaderValue::from_static(PORT_PROTOCOL);
        Ok(switching(Response::new(()), protocol))
    }
}
