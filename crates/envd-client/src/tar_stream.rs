//! Files out of a sandbox, as a tar.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::stream;
use http::Method;
use http_body_util::BodyExt;
use soulbox_outgoing::ChunkThrottle;
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::timeout,
};
use tokio_util::io::StreamReader;

use crate::{
    EnvdClient, Result,
    client::full,
    exchange::{CALL_LIMIT, Exchange, IDLE_LIMIT},
};

/// A tar of files inside, streamed. A stream that is cut short ends with an error. Names, sizes and
/// links in it are untrusted.
pub struct TarStream(Pin<Box<dyn AsyncRead + Send>>);

impl fmt::Debug for TarStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TarStream").finish_non_exhaustive()
    }
}

impl EnvdClient {
    /// A tar of what is at `path`: of a directory its content, with names below `./`, and the
    /// directory itself as `./`; of anything else (a symbolic link is followed) one entry with its
    /// name. [`EnvdClient::copy_in`] takes it with `src` empty. Nothing there: `not_found`.
    pub async fn tree(&self, path: &str) -> Result<TarStream> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("path", path)
            .finish();
        let request = self.control(Method::GET, &format!("/soulbox/tree?{query}"))?;
        let exchange = self
            .call(request, full(Bytes::new()), "files were read", CALL_LIMIT)
            .await?;
        let state = Some((exchange, ChunkThrottle::default()));
        let chunks = stream::unfold(state, |state| async move {
            let (mut exchange, mut throttle) = state?;
            throttle.next().await;
            match chunk(&mut exchange).await {
                Ok(Some(chunk)) => {
                    throttle.took(chunk.len());
                    Some((Ok(chunk), Some((exchange, throttle))))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(TarStream(Box::pin(StreamReader::new(Box::pin(chunks)))))
    }
}

async fn chunk(exchange: &mut Exchange) -> io::Result<Option<Bytes>> {
    loop {
        let frame = timeout(IDLE_LIMIT, exchange.response.body_mut().frame())
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the sandbox sends nothing"))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

impl AsyncRead for TarStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().0.as_mut().poll_read(cx, buffer)
    }
}
