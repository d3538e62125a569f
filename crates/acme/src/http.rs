//! Requests to an ACME server: few, so each has a connection of its own.

use std::{io, path::PathBuf, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use soulbox_outgoing::{Tls, collect_limited, connect_any, resolve};
use tokio::time::timeout;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// A chain is a few kilobytes.
const LARGEST_ANSWER: usize = 1 << 20;

pub(crate) struct Client {
    tls: Tls,
}

impl Client {
    pub(crate) fn new(extra_roots: Option<PathBuf>) -> Self {
        Self {
            tls: Tls::new(extra_roots),
        }
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            match timeout(ANSWER_LIMIT, exchange(&tls, request)).await {
                Ok(done) => done,
                Err(_) => Err(other(io::Error::from(io::ErrorKind::TimedOut))),
            }
        })
    }
}

async fn exchange(
    tls: &Tls,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, Error> {
    let uri = request.uri().clone();
    let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority().cloned()) else {
        return Err(Error::Str("an https address"));
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(443);
    let to = |error: io::Error| {
        other(io::Error::new(
            error.kind(),
            format!("{authority}: {error}"),
        ))
    };
    let addresses = resolve(host, port, CONNECT_LIMIT).await.map_err(to)?;
    let tcp = connect_any(&addresses, CONNECT_LIMIT).await.map_err(to)?;
    let stream = tls
        .connect(host, tcp, CONNECT_LIMIT)
        .await
        .map_err(|error| to(error.into_io()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(other)?;
    let driver = tokio::spawn(connection);

    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(other)?;
    request.headers_mut().insert(header::HOST, host);
    let answered = async {
        let response = sender.send_request(request).await.map_err(other)?;
        let (parts, body) = response.into_parts();
        let body = collect_limited(body, LARGEST_ANSWER).await.map_err(other)?;
        Ok(BytesResponse {
            parts,
            body: Box::new(body),
        })
    }
    .await;
    driver.abort();
    answered
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}
