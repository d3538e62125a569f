//! Envelopes: one flag byte, four bytes of length (big endian), the message.

use std::{io::Read, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use soulbox_envd_protocol::frames::{COMPRESSED, Decoder, END_OF_STREAM, begin, finish};

use super::{Code, ConnectError};

/// Larger messages are refused. Nothing that the SDKs send in one message comes near.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;
/// A client that sends nothing in the middle of a message for this long is given up.
const IDLE: Duration = Duration::from_mins(2);

/// One envelope around what `write` adds.
pub(crate) fn envelope(
    flags: u8,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ConnectError>,
) -> Result<Bytes, ConnectError> {
    let mut frame = begin();
    write(&mut frame)?;
    finish(frame, flags)
        .ok_or_else(|| ConnectError::new(Code::ResourceExhausted, "message over 4 GiB"))
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
    decoder: Decoder,
    gzip: bool,
}

impl Frames {
    pub(crate) fn new(body: Incoming, gzip: bool) -> Self {
        Self {
            body,
            decoder: Decoder::new(MAX_MESSAGE),
            gzip,
        }
    }

    /// The next message; `None` at the end of the request. `idle` bounds the wait for its start.
    pub(crate) async fn next(&mut self, idle: Duration) -> Result<Option<Bytes>, ConnectError> {
        loop {
            let frame = self.decoder.take_with_flags();
            if let Some((flags, message)) = frame.map_err(|_| too_large())? {
                if flags & END_OF_STREAM != 0 {
                    return Ok(None);
                }
                return self.inflate(flags, message).map(Some);
            }
            let wait = if self.decoder.is_empty() { idle } else { IDLE };
            let Some(data) = next_data(&mut self.body, wait).await? else {
                return if self.decoder.is_empty() {
                    Ok(None)
                } else {
                    Err(ConnectError::invalid("the request ends inside a message"))
                };
            };
            self.decoder.feed(&data);
        }
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
