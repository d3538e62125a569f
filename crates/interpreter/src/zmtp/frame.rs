//! Frames and the messages that they make up.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::Error;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Larger messages are skipped on the wire: the kernel must not be able to fill our memory.
pub(super) const MAX_MESSAGE: u64 = 64 << 20;
const MAX_PARTS: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) parts: Vec<Vec<u8>>,
    /// The parts from the first one that did not fit on are missing.
    pub(crate) cut: bool,
}

pub(super) fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let size = parts.iter().map(|part| part.len() + 9).sum();
    let mut wire = Vec::with_capacity(size);
    for (index, part) in parts.iter().enumerate() {
        let more = if index + 1 < parts.len() { MORE } else { 0 };
        put_header(&mut wire, more, part.len());
        wire.extend_from_slice(part);
    }
    wire
}

pub(super) fn encode_command(body: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(body.len() + 9);
    put_header(&mut wire, COMMAND, body.len());
    wire.extend_from_slice(body);
    wire
}

fn put_header(wire: &mut Vec<u8>, flags: u8, length: usize) {
    if let Ok(short) = u8::try_from(length) {
        wire.extend_from_slice(&[flags, short]);
    } else {
        wire.push(flags | LONG);
        wire.extend_from_slice(&(length as u64).to_be_bytes());
    }
}

struct Header {
    flags: u8,
    length: u64,
}

async fn read_header<R: AsyncRead + Unpin>(source: &mut R) -> Result<Header, Error> {
    let flags = source.read_u8().await?;
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return Err(Error::Protocol("a frame has unknown flags"));
    }
    let length = if flags & LONG == 0 {
        u64::from(source.read_u8().await?)
    } else {
        source.read_u64().await?
    };
    Ok(Header { flags, length })
}

/// Reads one command, as the handshake has them.
pub(super) async fn read_command<R: AsyncRead + Unpin>(source: &mut R) -> Result<Vec<u8>, Error> {
    const MAX_COMMAND: u64 = 64 << 10;
    let header = read_header(source).await?;
    if header.flags & COMMAND == 0 || header.length > MAX_COMMAND {
        return Err(Error::Protocol("no command where one is due"));
    }
    read_body(source, header.length).await
}

pub(super) async fn read_message<R: AsyncRead + Unpin>(source: &mut R) -> Result<Message, Error> {
    let mut message = Message::default();
    let mut room = MAX_MESSAGE;
    loop {
        let header = read_header(source).await?;
        if header.flags & COMMAND != 0 {
            skip(source, header.length).await?;
            continue;
        }
        if message.cut || header.length > room || message.parts.len() == MAX_PARTS {
            message.cut = true;
            skip(source, header.length).await?;
        } else {
            room -= header.length;
            message.parts.push(read_body(source, header.length).await?);
        }
        if header.flags & MORE == 0 {
            return Ok(message);
        }
    }
}

/// Memory grows with what arrives, not with what the length promises.
async fn read_body<R: AsyncRead + Unpin>(source: &mut R, length: u64) -> Result<Vec<u8>, Error> {
    const FIRST: u64 = 64 << 10;
    let mut body = Vec::with_capacity(usize::try_from(length.min(FIRST)).unwrap_or(0));
    let read = source.take(length).read_to_end(&mut body).await?;
    if read as u64 != length {
        return Err(Error::Io(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(body)
}

async fn skip<R: AsyncRead + Unpin>(source: &mut R, length: u64) -> Result<(), Error> {
    let skipped = tokio::io::copy(&mut source.take(length), &mut tokio::io::sink()).await?;
    if skipped != length {
        return Err(Error::Io(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(mut wire: &[u8]) -> Result<Message, Error> {
        read_message(&mut wire).await
    }

    #[tokio::test]
    async fn what_is_encoded_is_read_back() {
        let parts = vec![b"topic".to_vec(), Vec::new(), vec![7; 300]];
        let message = read(&encode(&parts)).await.unwrap();
        assert_eq!(message, Message { parts, cut: false });
    }

    #[tokio::test]
    async fn commands_between_frames_are_passed_over() {
        let mut wire = encode_command(b"\x04PING");
        wire.extend(encode(&[b"x".to_vec()]));
        assert_eq!(read(&wire).await.unwrap().parts, vec![b"x".to_vec()]);
    }

    #[tokio::test]
    async fn a_length_that_lies_allocates_nothing_and_ends_in_an_error() {
        let mut wire = vec![LONG];
        wire.extend_from_slice(&(MAX_MESSAGE - 1).to_be_bytes());
        wire.extend_from_slice(b"short");
        assert!(matches!(read(&wire).await, Err(Error::Io(_))));
    }

    #[tokio::test]
    async fn a_part_that_is_too_large_is_skipped_and_the_rest_of_the_stream_goes_on() {
        let size = usize::try_from(MAX_MESSAGE).unwrap() + 1;
        let mut wire = encode(&[b"head".to_vec(), vec![0; size]]);
        wire.extend(encode(&[b"next".to_vec()]));
        let mut source = wire.as_slice();
        let first = read_message(&mut source).await.unwrap();
        assert_eq!((first.parts, first.cut), (vec![b"head".to_vec()], true));
        let second = read_message(&mut source).await.unwrap();
        assert_eq!(second.parts, vec![b"next".to_vec()]);
    }

    #[tokio::test]
    async fn endless_parts_are_counted_not_kept() {
        let wire = encode(&vec![Vec::new(); 1000]);
        let message = read(&wire).await.unwrap();
        assert_eq!((message.parts.len(), message.cut), (MAX_PARTS, true));
    }

    #[tokio::test]
    async fn unknown_flags_are_refused() {
        assert!(matches!(read(&[0xff, 0]).await, Err(Error::Protocol(_))));
    }
}
