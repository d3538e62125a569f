//! Connect's stream framing: a flag byte, a big-endian length, a payload.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{Error, Result};

/// envd sends 32 KiB of output per event, a third more in base64. Whatever is inside cannot make us
/// hold more than this.
const MAX_FRAME: usize = 1 << 20;
const HEADER: usize = 5;
const END_OF_STREAM: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Message(Bytes),
    /// The last one: an empty object, or one with an `error`.
    End(Bytes),
}

pub(crate) fn encode(payload: &[u8]) -> Result<Bytes> {
    let length = u32::try_from(payload.len()).map_err(|_| Error::protocol("too long to send"))?;
    let mut frame = BytesMut::with_capacity(HEADER + payload.len());
    frame.put_u8(0);
    frame.put_u32(length);
    frame.put_slice(payload);
    Ok(frame.freeze())
}

/// Puts frames together from chunks that are cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Only after [`Decoder::take_frame`] had nothing more: so the buffer stays bounded.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame, or `None` until more is fed.
    pub(crate) fn take_frame(&mut self) -> Result<Option<Frame>> {
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [flags, a, b, c, d] = *header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !matches!(flags, 0 | END_OF_STREAM) {
            return Err(Error::protocol(format!("a frame with flags {flags:#04x}")));
        }
        if length > MAX_FRAME {
            return Err(Error::protocol(format!("a frame of {length} bytes")));
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let payload = self.buffer.split_to(length).freeze();
        Ok(Some(if flags == END_OF_STREAM {
            Frame::End(payload)
        } else {
            Frame::Message(payload)
        }))
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let mut wire = encode(b"{\"a\":1}").unwrap().to_vec();
        wire.extend_from_slice(&encode(b"").unwrap());
        wire.extend_from_slice(&[2, 0, 0, 0, 2, b'{', b'}']);
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for byte in wire {
            decoder.feed(&[byte]);
            frames.extend(decoder.take_frame().unwrap());
        }
        let expected = [
            Frame::Message(Bytes::from_static(b"{\"a\":1}")),
            Frame::Message(Bytes::new()),
            Frame::End(Bytes::from_static(b"{}")),
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn lengths_past_the_limit_and_unknown_flags_are_refused_before_their_bytes_come() {
        for header in [
            [0, 0xff, 0xff, 0xff, 0xff],
            [1, 0, 0, 0, 0],
            [7, 0, 0, 0, 9],
        ] {
            let mut decoder = Decoder::default();
            decoder.feed(&header);
            assert!(matches!(decoder.take_frame(), Err(Error::Protocol(_))));
        }
    }
}
