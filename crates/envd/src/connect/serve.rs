//! Calls: from an HTTP request to a handler and back.

use std::{marker::PhantomData, rc::Rc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use soulbox_envd_protocol::TIMEOUT_HEADER;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Code, ConnectError,
    codec::{Codec, Wire},
    frame::{self, Frames},
};
use crate::{
    http::body::{Body, BodyError},
    state::Envd,
};

/// A client that takes nothing for this long is cut, so that it cannot hold back a process.
const STALLED: Duration = Duration::from_mins(5);
/// A single streamed request message may take this long to begin.
const FIRST_MESSAGE: Duration = Duration::from_mins(1);
/// After its only message the request should be over.
const END_OF_REQUEST: Duration = Duration::from_secs(2);
/// How long a client stream may be silent. The SDKs send keepalives far more often.
const CLIENT_STREAM_IDLE: Duration = Duration::from_secs(640);

/// What every handler gets besides its message.
pub(crate) struct Call {
    pub(crate) envd: Rc<Envd>,
    pub(crate) headers: HeaderMap,
    /// From `Connect-Timeout-Ms`, counted from the arrival of the request.
    pub(crate) deadline: Option<Instant>,
}

impl Call {
    fn new(envd: Rc<Envd>, headers: HeaderMap) -> Result<Self, ConnectError> {
        let deadline = timeout(&headers)?.and_then(|t| Instant::now().checked_add(t));
        Ok(Self {
            envd,
            headers,
            deadline,
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Resolves at the deadline; never, when there is none.
    pub(crate) async fn deadline_passed(&self) {
        match self.deadline {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, ConnectError> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else {
        return Ok(None);
    };
    let millis: i64 = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| ConnectError::invalid("Connect-Timeout-Ms is not an integer"))?;
    // Zero and below mean "none", as clients without a timeout send.
    Ok(u64::try_from(millis)
        .ok()
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis))
}

/// The stream to the client of a server-streaming call.
pub(crate) struct Sink<M> {
    codec: Codec,
    frames: mpsc::Sender<Result<Bytes, BodyError>>,
    kind: PhantomData<M>,
}

impl<M: Wire> Sink<M> {
    /// Waits until the client takes the message. Fails when it is gone or has stalled.
    pub(crate) async fn send(&self, message: &M) -> Result<(), ConnectError> {
        let frame = frame::envelope(0, |to| self.codec.encode(message, to))?;
        match tokio::time::timeout(STALLED, self.frames.send(Ok(frame))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ConnectError::new(Code::Canceled, "the client is gone")),
            Err(_) => Err(ConnectError::new(
                Code::ResourceExhausted,
                "the client stopped reading",
            )),
        }
    }

    /// Resolves when the client is gone.
    pub(crate) async fn closed(&self) {
        self.frames.closed().await;
    }
}

pub(crate) async fn unary<Req: Wire, Res: Wire>(
    envd: Rc<Envd>,
    request: Request<Incoming>,
    handler: impl AsyncFnOnce(Call, Req) -> Result<Res, ConnectError>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Some(codec) = Codec::of_unary(&parts.headers) else {
        return unsupported("application/json, application/proto");
    };
    let answer = async {
        let gzip = match encoding(&parts.headers, "content-encoding") {
            "identity" => false,
            "gzip" => true,
            other => return Err(unknown_encoding(other)),
        };
        let call = Call::new(envd, parts.headers)?;
        let deadline = call.deadline;
        let work = async {
            let body = frame::whole_body(body).await?;
            let message = codec.decode(&if gzip { frame::gunzip(&body)? } else { body })?;
            let answer = handler(call, message).await?;
            let mut bytes = Vec::new();
            codec.encode(&answer, &mut bytes)?;
            Ok(bytes)
        };
        match deadline {
            None => work.await,
            Some(at) => tokio::time::timeout_at(at, work)
                .await
                .unwrap_or(Err(ConnectError::deadline())),
        }
    };
    let (status, kind, body) = match answer.await {
        Ok(bytes) => (StatusCode::OK, codec.unary_type(), bytes.into()),
        Err(error) => (error.code.status(), "application/json", error.to_json()),
    };
    respond(status, kind, Body::full(body))
}

pub(crate) async fn server_stream<Req: Wire + 'static, Res: Wire + 'static>(
    envd: Rc<Envd>,
    request: Request<Incoming>,
    handler: impl AsyncFnOnce(Call, Req, &Sink<Res>) -> Result<(), ConnectError> + 'static,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Some(codec) = Codec::of_stream(&parts.headers) else {
        return unsupported("application/connect+json, application/connect+proto");
    };
    let prepared = async {
        let gzip = stream_gzip(&parts.headers)?;
        let mut frames = Frames::new(body, gzip);
        let message = frames
            .next(FIRST_MESSAGE)
            .await?
            .ok_or_else(|| ConnectError::invalid("the request has no message"))?;
        // A body that is not read to its end makes the server close the connection, perhaps just
        // when the client sends its next request there.
        let _end = frames.next(END_OF_REQUEST).await;
        Ok((
            Call::new(envd, parts.headers)?,
            codec.decode::<Req>(&message)?,
        ))
    };
    let (call, message) = match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => {
            let body = Body::full(frame::end_of_stream(&Err(error)));
            return respond(StatusCode::OK, codec.stream_type(), body);
        }
    };
    // The last message and the end of the stream come together, and leave in one write: each of
    // them alone would wake everybody up to the client.
    let (frames, receiver) = mpsc::channel(2);
    // Its own task: what the handler does may outlive the client.
    tokio::task::spawn_local(async move {
        let sink = Sink {
            codec,
            frames,
            kind: PhantomData,
        };
        let result = handler(call, message, &sink).await;
        let last = Ok(frame::end_of_stream(&result));
        let _gone = tokio::time::timeout(STALLED, sink.frames.send(last)).await;
    });
    respond(StatusCode::OK, codec.stream_type(), Body::stream(receiver))
}

pub(crate) async fn client_stream<Req: Wire, Res: Wire>(
    envd: Rc<Envd>,
    request: Request<Incoming>,
    handler: impl AsyncFnOnce(Call, Messages<Req>) -> Result<Res, ConnectError>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Some(codec) = Codec::of_stream(&parts.headers) else {
        return unsupported("application/connect+json, application/connect+proto");
    };
    let answer = async {
        let frames = Frames::new(body, stream_gzip(&parts.headers)?);
        let call = Call::new(envd, parts.headers)?;
        let deadline = call.deadline;
        let work = handler(
            call,
            Messages {
                codec,
                frames,
                kind: PhantomData,
            },
        );
        let answer = match deadline {
            None => work.await,
            Some(at) => tokio::time::timeout_at(at, work)
                .await
                .unwrap_or(Err(ConnectError::deadline())),
        }?;
        frame::envelope(0, |to| codec.encode(&answer, to))
    };
    let body = match answer.await {
        Ok(message) => [message, frame::end_of_stream(&Ok(()))].concat().into(),
        Err(error) => frame::end_of_stream(&Err(error)),
    };
    respond(StatusCode::OK, codec.stream_type(), Body::full(body))
}

/// The messages of a client stream.
pub(crate) struct Messages<M> {
    codec: Codec,
    frames: Frames,
    kind: PhantomData<M>,
}

impl<M: Wire> Messages<M> {
    pub(crate) async fn next(&mut self) -> Result<Option<M>, ConnectError> {
        match self.frames.next(CLIENT_STREAM_IDLE).await? {
            None => Ok(None),
            Some(bytes) => self.codec.decode(&bytes).map(Some),
        }
    }
}

fn stream_gzip(headers: &HeaderMap) -> Result<bool, ConnectError> {
    match encoding(headers, "connect-content-encoding") {
        "identity" => Ok(false),
        "gzip" => Ok(true),
        other => Err(unknown_encoding(other)),
    }
}

fn encoding<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .and_then(|v| v.to_str().ok())
        .map(str::trim)
        .filter(|v| !v.is_empty())
        .unwrap_or("identity")
}

fn unknown_encoding(name: &str) -> ConnectError {
    ConnectError::new(
        Code::Unimplemented,
        format!("unknown compression {name:?}: supported encodings are gzip"),
    )
}

fn unsupported(accepted: &'static str) -> Response<Body> {
    let mut response = respond(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "text/plain",
        Body::empty(),
    );
    response
        .headers_mut()
        .insert("accept-post", http::HeaderValue::from_static(accepted));
    response
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
