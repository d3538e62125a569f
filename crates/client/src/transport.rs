//! Requests over hyper's pool, each with a deadline, answers with a size limit.

use std::{error::Error as StdError, io, path::PathBuf, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use soulbox_outgoing::{TlsError, watch_pooled};
use soulbox_types::causes;
use tokio::time::timeout;

use crate::{
    Error, Result,
    connector::{ConnectError, Connector},
};

/// The largest answer to a unary call that we read.
const MAX_ANSWER: usize = 16 << 20;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(crate) fn empty() -> Body {
    full(Bytes::new())
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Debug, Clone)]
pub(crate) struct Transport {
    pool: Client<Connector, Body>,
}

impl Transport {
    pub(crate) fn new(extra_roots: Option<PathBuf>) -> Self {
        let pool = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(Connector::new(extra_roots));
        Self { pool }
    }

    /// Returns when the head of the answer is there. The caller bounds the wait.
    pub(crate) async fn open(&self, mut request: Request<Body>) -> Result<Response<Incoming>> {
        let headers = request.headers_mut();
        headers.insert(
            header::USER_AGENT,
            http::HeaderValue::from_static(concat!("soulbox/", env!("CARGO_PKG_VERSION"))),
        );
        watch_pooled(&mut request);
        let url = origin(request.uri());
        self.pool
            .request(request)
            .await
            .map_err(|error| classify(url, error))
    }

    pub(crate) async fn unary(
        &self,
        request: Request<Body>,
        what: &'static str,
        limit: Duration,
    ) -> Result<Answer> {
        let url = origin(request.uri());
        let exchange = async {
            let response = self.open(request).await?;
            collect(url, response).await
        };
        timeout(limit, exchange)
            .await
            .map_err(|_| Error::Timeout { what, limit })?
    }
}

pub(crate) async fn collect(url: String, response: Response<Incoming>) -> Result<Answer> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| {
            if error.is::<LengthLimitError>() {
                Error::protocol(format!("more than {} MiB", MAX_ANSWER >> 20))
            } else {
                Error::Broken { url, source: error }
            }
        })?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: body.to_bytes(),
    })
}

pub(crate) fn origin(uri: &http::Uri) -> String {
    format!(
        "{}://{}",
        uri.scheme_str().unwrap_or("http"),
        uri.authority().map_or("", |authority| authority.as_str())
    )
}

fn classify(url: String, error: legacy::Error) -> Error {
    // io::Error is not Clone; its kind and text are what people and `hint` need.
    let copy = |e: &io::Error| io::Error::new(e.kind(), e.to_string());
    if let Some(connect) = find::<ConnectError>(&error) {
        return match connect {
            ConnectError::Tcp(source) => Error::Unreachable {
                url,
                source: copy(source),
            },
            ConnectError::Tls(TlsError::Handshake(source)) => Error::Tls {
                url,
                source: copy(source),
            },
            ConnectError::Tls(TlsError::Roots(source)) => Error::Roots(copy(source)),
        };
    }
    // hyper calls it a user error when the body that we gave it fails.
    if find::<hyper::Error>(&error).is_some_and(hyper::Error::is_user)
        && let Some(source) = find::<io::Error>(&error)
    {
        return Error::Source(copy(source));
    }
    Error::Broken {
        url,
        source: Box::new(error),
    }
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    causes(error).find_map(|cause| cause.downcast_ref())
}
