//! Sandboxes that cannot be used.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{CALL_LIMIT, CREATE_LIMIT, Client, parse, refusal, segment};
use crate::{
    Error, Result,
    model::{BrokenSandbox, ListedSandbox},
    transport,
};

/// Between two pieces of a disk.
const IDLE_LIMIT: Duration = Duration::from_mins(1);

/// A disk as it comes.
#[derive(Debug)]
pub struct Disk {
    /// What it will be in all.
    pub length: u64,
    body: Incoming,
}

impl Disk {
    /// `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let what = "reading the disk";
            let frame = timeout(IDLE_LIMIT, self.body.frame())
                .await
                .map_err(|_| Error::protocol(format!("{what} stands still")))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(Error::protocol(format!("{what}: {error}"))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl Client {
    pub async fn broken(&self) -> Result<Vec<BrokenSandbox>> {
        self.get("/v1/broken", "listing the broken sandboxes").await
    }

    /// Brings one back from its files.
    pub async fn recover(&self, id: &str) -> Result<ListedSandbox> {
        let path = format!("/v1/broken/{}/recover", segment(id));
        let what = "recovering the sandbox";
        let answer = self.call(Method::POST, &path, None, what, CREATE_LIMIT);
        parse(&answer.await?)
    }

    /// Removes one for good.
    pub async fn discard(&self, id: &str) -> Result<()> {
        let path = format!("/v1/broken/{}", segment(id));
        let what = "removing the broken sandbox";
        let answer = self.call(Method::DELETE, &path, None, what, CALL_LIMIT);
        answer.await.map(drop)
    }

    /// The ext4 image that was its disk.
    pub async fn broken_disk(&self, id: &str) -> Result<Disk> {
        let path = format!("/v1/broken/{}/disk", segment(id));
        let request = self.request(Method::GET, &path, None)?;
        let opened = timeout(CALL_LIMIT, self.transport.open(request)).await;
        let response = opened.map_err(|_| Error::protocol("the server does not answer"))??;
        if !response.status().is_success() {
            let url = path;
            let answer = transport::collect(url, response).await?;
            return Err(Error::Api(refusal(&answer)));
        }
        let length = response.headers().get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let length = length.ok_or_else(|| Error::protocol("the disk has no length"))?;
        Ok(Disk {
            length,
            body: response.into_body(),
        })
    }
}
