//! Envelopes: one flag byte, four bytes of length (big endian), the message.

use std::{io::Read, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{Code, ConnectError};

pub(crate) const COMPRESSED: u8 = 1;
pub(crate) const END_OF_STREAM: u8 = 2;
const HEADER: usize = 5;

/// Larger messages are refused. Nothing that the SDKs send in one message comes near.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;
/// A client that sends nothing in the middle of a message for this long is given up.
const IDLE: Duration = Duration::from_mins(2);

/// One envelope around what `write` adds.
pub(crate) fn envelope(
    flags: u8,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ConnectError>,
) -> Result<Bytes, ConnectError> {
    let mut frame = vec![0; HEADER];
    write(&mut frame)?;
    let length = u32::try_from(frame.len() - HEADER)
        .map_err(|_| ConnectError::new(Code::ResourceExhausted, "message over 4 GiB"))?;
    frame[0] = flags;
    frame[1..HEADER].copy_from_slice(&length.to_be_bytes());
    Ok(frame.into())
}

/// The last envelope of every stream.
pub(crate) fn end_of_stream(result: &Result<(), ConnectError>) -> Bytes {
    let body = match result {
        Ok(()) => serde_json::json!({}),
        Err(error) => serde_json::json!({ "error": error }),
    };
    envelope(END_OF_STREAM, |to| {
        to.extend_from_slice(body.to_string().as_bytes());
        Ok(())
    })
    .unwrap_or_default()
}

/// Reads the envelopes of a request, one by one.
pub(crate) struct Frames {
    body: Incoming,
    buffer: BytesMut,
    gzip: bool,
}

impl Frames {
    pub(crate) fn new(body: Incoming, gzip: bool) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            gzip,
        }
    }

    /// The next message; `None` at the end of the request. `idle` bounds the wait for its start.
    pub(crate) async fn next(&mut self, idle: Duration) -> Result<Option<Bytes>, ConnectError> {
        loop {
            if let Some((flags, message)) = self.take()? {
                if flags & END_OF_STREAM != 0 {
                    return Ok(None);
                }
                return self.inflate(flags, message).map(Some);
            }
            let wait = if self.buffer.is_empty() { idle } else { IDLE };
            let Some(data) = next_data(&mut self.body, wait).await? else {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(ConnectError::invalid("the request ends inside a message"))
                };
            };
            self.buffer.extend_from_slice(&data);
        }
    }

    fn take(&mut self) -> Result<Option<(u8, Bytes)>, ConnectError> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [flags, a, b, c, d] = *header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_MESSAGE {
            return Err(too_large());
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        Ok(Some((flags, self.buffer.split_to(length).freeze())))
    }

    fn inflate(&self, flags: u8, message: Bytes) -> Result<Bytes, ConnectError> {
        match (flags & COMPRESSED != 0, self.gzip) {
            (false, _) => Ok(message),
            (true, true) => gunzip(&message),
            (true, false) => Err(ConnectError::internal(
                "compressed message without a Connect-Content-Encoding that is known here",
            )),
        }
    }
}

/// The whole body of a unary request.
pub(crate) async fn whole_body(mut body: Incoming) -> Result<Bytes, ConnectError> {
    let mut all = BytesMut::new();
    while let Some(data) = next_data(&mut body, IDLE).await? {
        if all.len() + data.len() > MAX_MESSAGE {
            return Err(too_large());
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

pub(crate) fn gunzip(data: &[u8]) -> Result<Bytes, ConnectError> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(data)
        .take(MAX_MESSAGE as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|e| ConnectError::invalid(format!("not gzip: {e}")))?;
    if plain.len() > MAX_MESSAGE {
        Err(too_large())
    } else {
        Ok(plain.into())
    }
}

async fn next_data(body: &mut Incoming, wait: Duration) -> Result<Option<Bytes>, ConnectError> {
    loop {
        let frame = tokio::time::timeout(wait, body.frame())
            .await
            .map_err(|_| ConnectError::new(Code::DeadlineExceeded, "the request stalled"))?;
        match frame {
            None => return Ok(None),
            Some(Err(e)) => return Err(ConnectError::new(Code::Canceled, e.to_string())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn too_large() -> ConnectError {
    ConnectError::new(
        Code::ResourceExhausted,
        format!("message larger than {MAX_MESSAGE} bytes: send it in parts"),
    )
}

#[cfg(test)]
mod properties;
