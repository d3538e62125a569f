//! The sandbox's own environment variables, as envd knows them.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

const TIMEOUT: Duration = Duration::from_secs(3);
const MAX_ANSWER: usize = 4 << 20;

pub(crate) type Variables = BTreeMap<String, String>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("envd cannot be reached")]
    Connect(#[from] std::io::Error),
    #[error("envd's answer failed")]
    Http(#[from] hyper::Error),
    #[error("envd answered {0}")]
    Status(StatusCode),
    #[error("envd's answer is not an object of strings")]
    Malformed,
    #[error("envd did not answer in time")]
    Silent,
}

/// Asks envd. The token is the one that the client sent us, if it sent one.
pub(crate) async fn variables(port: u16, token: Option<&HeaderValue>) -> Result<Variables, Error> {
    timeout(TIMEOUT, ask(port, token))
        .await
        .map_err(|_| Error::Silent)?
}

async fn ask(port: u16, token: Option<&HeaderValue>) -> Result<Variables, Error> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::task::spawn_local(connection);
    let mut request = Request::get("/envs").header(header::HOST, "localhost");
    if let Some(token) = token {
        request = request.header("X-Access-Token", token);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Malformed)?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        return Err(Error::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|_| Error::Malformed)?
        .to_bytes();
    driver.abort();
    serde_json::from_slice(&body).map_err(|_| Error::Malformed)
}
