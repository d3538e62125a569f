//! One request over one connection into the sandbox, streaming in both directions. HTTP/1.1 inside, as
//! in E2B, and no connection is reused: nothing of one client's request can reach another's.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request, response,
};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use soulbox_outgoing::InterimLimit;
use soulbox_runtime::DynStream;
use soulbox_types::Chain;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Body, BoxError, ClientConnection,
    activity::{Activity, Metered},
    body::{OpenStream, ResponseBody},
    headers,
    ingress::Ingress,
    inner_tls,
    proxy::Inner,
    refusal::Refusal,
    route::{self, Target},
    sandbox_tracker::Stream,
    stream_limiter::StreamPermit,
    tunnel::Tunnel,
    upload::Upload,
};

/// Of a response's head: a hostile server inside must not make us buffer much.
const MAX_RESPONSE_HEADERS: usize = 200;
const MAX_RESPONSE_BUFFER: usize = 256 << 10;
/// A connection that broke before the response may be the first sign that the sandbox ends.
const END_EVENT_DELAY: Duration = Duration::from_millis(300);

pub(crate) struct Exchange {
    pub(crate) proxy: Arc<Inner>,
    pub(crate) target: Target,
    pub(crate) stream: Stream,
    pub(crate) ingress: Ingress,
    pub(crate) connection: DynStream,
    pub(crate) permit: StreamPermit,
}

impl Exchange {
    pub(crate) async fn run<B>(self, mut request: Request<B>) -> Result<Response<Body>, Refusal>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let upgrade =
            headers::upgrade(request.headers()).filter(|_| request.version() == Version::HTTP_11);
        let client_upgrade = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        prepare(&mut parts, self.ingress.host.as_ref());
        let body = Upload::new(body, &self.proxy);
        let mut request = Request::from_parts(parts, body);
        let heads = InterimLimit::default();
        heads.watch(&mut request);

        let Self {
            proxy,
            target,
            stream,
            ingress,
            connection,
            permit,
        } = self;
        let bad_answer = || Refusal::BadAnswer {
            id: target.id.clone(),
            port: target.port,
        };
        let connection = if ingress.tls {
            let host = request.headers().get(header::HOST);
            let host = host.and_then(|host| host.to_str().ok());
            let wrapped = tokio::select! {
                biased;
                () = stream.sandbox.ended().cancelled() => return Err(Refusal::NotFound(target.id)),
                wrapped = inner_tls::wrap(connection, host) => wrapped,
            };
            wrapped.map_err(|error| {
                tracing::debug!(sandbox_id = %target.id, port = target.port, error = %Chain(&error), "no TLS inside");
                bad_answer()
            })?
        } else {
            connection
        };
        let activity = Activity::new();
        let permit = Arc::new(permit);
        let io = Metered::new(
            connection,
            Arc::clone(&permit),
            Arc::clone(&activity),
            Arc::clone(&proxy.counters),
        );
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_RESPONSE_HEADERS)
            .max_buf_size(MAX_RESPONSE_BUFFER)
            .preserve_header_case(true)
            .title_case_headers(true)
            .handshake(TokioIo::new(heads.bound(io)))
            .await
            .map_err(|_| bad_answer())?;
        let sandbox = Arc::clone(&stream.sandbox);
        let ended = sandbox.ended().clone();
        // In a task of its own: otherwise a client that does not read the response would keep it open,
        // and with it the sandbox's network and a descriptor.
        let connection = tokio::spawn(async move {
            let connection = ended.run_until_cancelled_owned(connection.with_upgrades());
            if let Some(Err(error)) = connection.await {
                tracing::trace!(error = %Chain(&error), "a connection into a sandbox ended");
            }
        });
        let open = OpenStream::new(
            Arc::clone(&proxy.counters),
            stream,
            permit,
            Some(AbortOnDropHandle::new(connection)),
        );

        let idle_limit = proxy.config.idle_timeout;
        let answer = tokio::select! {
            biased;
            () = sandbox.ended().cancelled() => return Err(Refusal::NotFound(target.id)),
            answer = sender.send_request(request) => answer,
            () = Arc::clone(&activity).idle(idle_limit) => {
                return Err(Refusal::NoAnswer { id: target.id, port: target.port });
            }
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(sandbox_id = %target.id, port = target.port, error = %Chain(&error), "no valid answer");
                if sandbox.ends_within(END_EVENT_DELAY).await || !proxy.sandboxes.runs(&target.id) {
                    return Err(Refusal::NotFound(target.id));
                }
                return Err(bad_answer());
            }
        };

        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let protocol = upgrade.ok_or_else(bad_answer)?;
            let protocol = answer
                .headers()
                .get(header::UPGRADE)
                .cloned()
                .unwrap_or(protocol);
            let sandbox_upgrade = hyper::upgrade::on(&mut answer);
            let ended = sandbox.ended().clone();
            let tunnel = Tunnel {
                id: target.id,
                client: client_upgrade,
                ended,
                activity,
                idle_limit,
                open,
            };
            let sandbox = async move { sandbox_upgrade.await.map(TokioIo::new) };
            tokio::spawn(tunnel.run(sandbox));
            return Ok(switching(head(answer.into_parts().0), protocol));
        }

        let (parts, answer) = answer.into_parts();
        let ends_with_connection = !parts.headers.contains_key(header::CONTENT_LENGTH)
            && !parts.headers.contains_key(header::TRANSFER_ENCODING)
            && !answer.is_end_stream();
        let body = ResponseBody {
            answer,
            id: target.id,
            ends_with_connection,
            ended: Box::pin(sandbox.ended().clone().cancelled_owned()),
            idle: Box::pin(activity.idle(idle_limit)),
            pace: sandbox.pace(),
            open,
            proxy,
        };
        Ok(head(parts).map(|()| body.boxed_unsync()))
    }
}

/// Turns the client's request head into one for the server inside.
fn prepare(parts: &mut request::Parts, mask: Option<&HeaderValue>) {
    let host = route::host(&parts.uri, &parts.headers).map(str::to_owned);
    let client = parts.extensions.get::<ClientConnection>().copied();
    headers::prepare_request(&mut parts.headers, host.as_deref(), client.as_ref());
    if let Some(mask) = mask {
        headers::mask_host(&mut parts.headers, host.as_deref(), mask);
    }
    // They include how the client spelled the header names: simple servers inside look for `Host`,
    // which E2B's proxy always writes.
    parts.extensions.clear();
    let target = parts.uri.path_and_query().cloned().map(Uri::from);
    parts.uri = target.unwrap_or_else(|| Uri::from_static("/"));
    parts.version = Version::HTTP_11;
    debug_assert_ne!(parts.method, Method::CONNECT, "refused before");
}

/// The head for the client: the version of HTTP that is spoken inside stays there.
fn head(mut parts: response::Parts) -> Response<()> {
    headers::prepare_answer(&mut parts.headers);
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, ())
}

/// The answer after which there is no HTTP any more.
pub(crate) fn switching(mut response: Response<()>, protocol: HeaderValue) -> Response<Body> {
    headers::keep_upgrade(response.headers_mut(), protocol);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.map(|()| {
        http_body_util::Empty::new()
            .map_err(|never| match never {})
            .boxed_unsync()
    })
}
