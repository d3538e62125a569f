//! Sandboxes that cannot be used.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
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

/// Between two chunks of a disk.
const IDLE_LIMIT: Duration = Duration::from_mins(1);
const HEAD: usize = 16;
const MAX_CHUNK: u64 = 16 << 20;

/// A disk image as a stream of its chunks that are not holes.
#[derive(Debug)]
pub struct Disk {
    body: Incoming,
    come: BytesMut,
}

/// A part of a disk.
#[derive(Debug, PartialEq, Eq)]
pub enum DiskChunk {
    Data {
        start: u64,
        data: Bytes,
    },
    /// All of it has come: so long is the whole.
    End {
        length: u64,
    },
}

impl Disk {
    pub async fn next(&mut self) -> Result<DiskChunk> {
        loop {
            if let Some(chunk) = take_chunk(&mut self.come)? {
                return Ok(chunk);
            }
            let frame = timeout(IDLE_LIMIT, self.body.frame()).await;
            let frame = frame.map_err(|_| Error::protocol("the disk does not come any more"))?;
            match frame {
                None => return Err(Error::protocol("only a part of the disk came: try again")),
                Some(Err(error)) => return Err(Error::protocol(format!("the disk: {error}"))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.come.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// `None`: more must come first.
fn take_chunk(come: &mut BytesMut) -> Result<Option<DiskChunk>> {
    let Some((mut head, rest)) = come.split_at_checked(HEAD) else {
        return Ok(None);
    };
    let (start, length) = (head.get_u64(), head.get_u64());
    if length > MAX_CHUNK {
        return Err(Error::protocol("a chunk of the disk is too long"));
    }
    if length == 0 {
        return Ok(Some(DiskChunk::End { length: start }));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if rest.len() < length {
        return Ok(None);
    }
    come.advance(HEAD);
    let data = come.split_to(length).freeze();
    Ok(Some(DiskChunk::Data { start, data }))
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
        Ok(Disk {
            body: response.into_body(),
            come: BytesMut::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_taken_when_they_are_whole_and_never_too_long() {
        let mut come = BytesMut::new();
        let mut chunk = [7_u64.to_be_bytes(), 3_u64.to_be_bytes()].concat();
        chunk.extend_from_slice(b"abc");
        for byte in &chunk {
            assert_eq!(take_chunk(&mut come).unwrap(), None);
            come.extend_from_slice(&[*byte]);
        }
        let data = Bytes::from_static(b"abc");
        assert_eq!(
            take_chunk(&mut come).unwrap(),
            Some(DiskChunk::Data { start: 7, data })
        );
        come.extend_from_slice(&[9_u64.to_be_bytes(), 0_u64.to_be_bytes()].concat());
        assert_eq!(
            take_chunk(&mut come).unwrap(),
            Some(DiskChunk::End { length: 9 })
        );
        let mut long = BytesMut::from(&[0xff; HEAD][..]);
        assert!(take_chunk(&mut long).is_err());
    }
}
