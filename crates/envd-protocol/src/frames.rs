//! Connect's stream framing: a flag byte, a big-endian length, a payload.

use bytes::{Buf, Bytes, BytesMut};

/// A flag of a frame whose payload is compressed.
pub const COMPRESSED: u8 = 1;
/// The flag of the last frame of a stream.
pub const END_OF_STREAM: u8 = 2;
const HEADER: usize = 5;

/// A frame that is not compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Message(Bytes),
    /// The last one; an empty object or one with an `error`.
    End(Bytes),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("a frame of {length} bytes, more than the {max} allowed")]
    TooLong { length: usize, max: usize },
    #[error("a compressed frame, which was not asked for")]
    Compressed,
    #[error("a frame with unknown flags {0:#04x}")]
    Flags(u8),
}

/// A message as a frame. `None`: it is longer than a frame can be.
pub fn encode(payload: &[u8]) -> Option<Bytes> {
    let mut frame = begin();
    frame.extend_from_slice(payload);
    finish(frame, 0)
}

/// Room for a header; the payload is added behind it, without a copy. See [`finish`].
pub fn begin() -> Vec<u8> {
    vec![0; HEADER]
}

/// The frame of what was added since [`begin`]. `None`: it is longer than a frame can be.
pub fn finish(mut frame: Vec<u8>, flags: u8) -> Option<Bytes> {
    let length = u32::try_from(frame.len().checked_sub(HEADER)?).ok()?;
    frame[0] = flags;
    frame[1..HEADER].copy_from_slice(&length.to_be_bytes());
    Some(frame.into())
}

/// Puts frames together from chunks that are cut anywhere.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    max: usize,
}

impl Decoder {
    /// `max`: of a payload. Whoever sends cannot make us hold more than one frame of that size and
    /// one chunk.
    pub fn new(max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            max,
        }
    }

    /// To be called when there is no whole frame any more: so the buffer stays bounded.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Whether the stream may end here.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next whole frame, or `None` until more is fed. One with flags that nobody asked for is
    /// refused before its payload comes.
    pub fn take_frame(&mut self) -> Result<Option<Frame>, BadFrame> {
        match self.buffer.first() {
            None | Some(&(0 | END_OF_STREAM)) => {}
            Some(flags) if flags & COMPRESSED != 0 => return Err(BadFrame::Compressed),
            Some(flags) => return Err(BadFrame::Flags(*flags)),
        }
        let frame = self.take_with_flags()?;
        Ok(frame.map(|(flags, payload)| match flags {
            END_OF_STREAM => Frame::End(payload),
            _ => Frame::Message(payload),
        }))
    }

    /// The same with any flags, for whoever knows what to do with them.
    pub fn take_with_flags(&mut self) -> Result<Option<(u8, Bytes)>, BadFrame> {
        let Some(&[flags, a, b, c, d]) = self.buffer.first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > self.max {
            return Err(BadFrame::TooLong {
                length,
                max: self.max,
            });
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        Ok(Some((flags, self.buffer.split_to(length).freeze())))
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let mut wire = encode(b"{\"a\":1}").unwrap().to_vec();
        wire.extend_from_slice(&encode(b"").unwrap());
        wire.extend_from_slice(&[2, 0, 0, 0, 2, b'{', b'}']);
        let mut decoder = Decoder::new(MAX);
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
        assert!(decoder.is_empty());
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::new(MAX);
        decoder.feed(&[0, 0xff, 0xff, 0xff, 0xff]);
        let refused = BadFrame::TooLong {
            length: 0xffff_ffff,
            max: MAX,
        };
        assert_eq!(decoder.take_frame(), Err(refused));
    }

    #[test]
    fn unknown_and_compressed_flags_are_refused_unless_they_are_asked_for() {
        for (flags, error) in [
            (1, BadFrame::Compressed),
            (3, BadFrame::Compressed),
            (4, BadFrame::Flags(4)),
        ] {
            let mut decoder = Decoder::new(MAX);
            decoder.feed(&[flags, 0, 0, 0, 0]);
            assert_eq!(decoder.take_frame(), Err(error));
            assert_eq!(decoder.take_with_flags(), Ok(Some((flags, Bytes::new()))));
        }
    }
}
