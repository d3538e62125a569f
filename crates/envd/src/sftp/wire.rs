//! Packets: a length, a kind, an id, and fields that are numbers or bytes with a length.

use std::io::{self, ErrorKind, Read};

/// As OpenSSH's server has it.
pub(super) const MAX_PACKET: usize = 256 << 10;
/// Of a read or a write: the rest of its packet is small.
pub(super) const MAX_DATA: usize = MAX_PACKET - 1024;

/// A request without its length.
#[derive(Debug)]
pub(super) struct Packet {
    body: Vec<u8>,
}

/// The request is not what its kind needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Packet {
    /// `None` at the end of the input between two packets.
    pub(super) fn read(input: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        match input.read(&mut length)? {
            0 => return Ok(None),
            read => input.read_exact(length.get_mut(read..).unwrap_or_default())?,
        }
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > MAX_PACKET {
            return Err(io::Error::new(ErrorKind::InvalidData, "a packet's length"));
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        Ok(Some(Self { body }))
    }

    pub(super) fn fields(&self) -> Fields<'_> {
        Fields(&self.body)
    }
}

/// What is left of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1)?.first().copied().ok_or(Malformed)
    }

    pub(super) fn number(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub(super) fn long(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
        Ok(u64::from_be_bytes(bytes))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()? as usize;
        self.take(length)
    }
}

/// A response that is being written.
#[derive(Debug)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn new(kind: u8, id: u32) -> Self {
        Self(vec![0, 0, 0, 0, kind]).number(id)
    }

    pub(super) fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut answer = self.number(length);
        answer.0.extend_from_slice(bytes);
        answer
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len().saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(place) = self.0.first_chunk_mut() {
            *place = length.to_be_bytes();
        }
        self.0
    }
}
