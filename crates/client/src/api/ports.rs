//! A port of a sandbox as a stream of raw bytes.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{Client, refusal, segment};
use crate::{Error, Result, transport};

/// A connection to a server inside. Either side may finish writing and still read.
pub type PortStream = TokioIo<Upgraded>;

/// The server may have to wake the sandbox, and waits for ports that are about to open.
const OPEN_LIMIT: Duration = Duration::from_mins(1);

impl Client {
    /// Where a port is served by HTTP, or `None` when there are no names under the server's address.
    pub fn port_url(&self, id: &str, port: u16) -> Option<String> {
        self.data.port_url(id, port)
    }

    /// Connects to a port inside; a failure that [`Error::is_closed_port`] means that nothing listens.
    pub async fn open_port(&self, id: &str, port: u16) -> Result<PortStream> {
        let path = format!("/v1/sandboxes/{}/ports/{port}", segment(id));
        let mut request = self.request(Method::GET, &path, None)?;
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("tcp"));
        let origin = transport::origin(request.uri());
        let open = async {
            let response = self.transport.open(request).await?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let upgraded = hyper::upgrade::on(response).await;
                return upgraded.map(TokioIo::new).map_err(|source| Error::Broken {
                    url: origin,
                    source: Box::new(source),
                });
            }
            let answer = transport::collect(origin, response).await?;
            Err(Error::Api(refusal(&answer)))
        };
        timeout(OPEN_LIMIT, open)
            .await
            .map_err(|_| Error::Timeout {
                what: "opening the port",
                limit: OPEN_LIMIT,
            })?
    }
}
