//! Connect's stream framing: a flag byte, a big-endian length, a payload.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest frame that we take. envd sends 32 KiB of output per event, a third more in base64;
/// a replay may be larger. Whatever is inside the sandbox cannot make us hold more than this.
pub const MAX_FRAME: usize = 8 << 20;
const HEADER: usize = 5;
const COMPRESSED: u8 = 1;
const END_OF_STREAM: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Message(Bytes),
    /// The last one; an empty object or one with an `error`.
    End(Bytes),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("a frame of {length} bytes, more than the {MAX_FRAME} allowed")]
    TooLong { length: usize },
    #[error("a compressed frame, which was not asked for")]
    Compressed,
    #[error("a frame with unknown flags {0:#04x}")]
    Flags(u8),
}

pub fn encode(payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER + payload.len());
    frame.put_u8(0);
    // A payload that long is never made here: inputs are cut into chunks of 32 KiB.
    frame.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    frame.put_slice(payload);
    frame.freeze()
}

/// Puts frames together from chunks that are cut anywhere.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    pub fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame, or `None` until more is fed.
    pub fn take_frame(&mut self) -> Result<Option<Frame>, BadFrame> {
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [flags, a, b, c, d] = *header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        match flags {
            0 | END_OF_STREAM => {}
            flags if flags & COMPRESSED != 0 => return Err(BadFrame::Compressed),
            flags => return Err(BadFrame::Flags(flags)),
        }
        if length > MAX_FRAME {
            return Err(BadFrame::TooLong { length });
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
        let mut wire = encode(b"{\"a\":1}").to_vec();
        wire.extend_from_slice(&encode(b""));
        wire.extend_from_slice(&[2, 0, 0, 0, 2, b'{', b'}']);
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for byte in wire {
            decoder.feed(&[byte]);
            frames.extend(decoder.take_frame().unwrap());
        }
        assert_eq!(
            frames,
            [
                Frame::Message(Bytes::from_static(b"{\"a\":1}")),
                Frame::Message(Bytes::new()),
                Frame::End(Bytes::from_static(b"{}")),
            ]
        );
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::default();
        decoder.feed(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(
            decoder.take_frame(),
            Err(BadFrame::TooLong {
                length: 0xffff_ffff
            })
        );
    }

    #[test]
    fn unknown_and_compressed_flags_are_refused() {
        for (flags, error) in [
            (1, BadFrame::Compressed),
            (3, BadFrame::Compressed),
            (4, BadFrame::Flags(4)),
        ] {
            let mut decoder = Decoder::default();
            decoder.feed(&[flags, 0, 0, 0, 0]);
            assert_eq!(decoder.take_frame(), Err(error));
        }
    }
}
