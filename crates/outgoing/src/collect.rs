//! Reads short bodies whole.

use std::error::Error as StdError;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use crate::ChunkThrottle;

#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("the answer is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the answer broke off")]
    BrokenOff(#[source] Box<dyn StdError + Send + Sync>),
}

/// The whole body, if it has at most `limit` bytes. The caller bounds the time.
pub async fn collect_limited<B>(body: B, limit: usize) -> Result<Bytes, CollectError>
where
    B: Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let mut throttle = ChunkThrottle::default();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CollectError::BrokenOff(error.into()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if data.remaining() > limit - all.len() {
            return Err(CollectError::TooLong { limit });
        }
        throttle.took(data.remaining());
        bytes::BufMut::put(&mut all, data);
        throttle.next().await;
    }
    Ok(all.freeze())
}
