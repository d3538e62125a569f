//! The server's name in the first message of TLS. Whatever is not exactly as the standard has it is
//! refused: a server that reads it in another way than we do would be asked for another name.

use super::refusal::Refused;

/// With post-quantum keys and session tickets a hello has some kilobytes.
pub(super) const LARGEST: usize = 16 << 10;

pub(super) const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const MAJOR_VERSION: u8 = 3;
const RECORD_HEADER: usize = 5;
const LARGEST_RECORD: usize = 1 << 14;
const HELLO_HEADER: usize = 4;
const RANDOM: usize = 32;
const LARGEST_SESSION_ID: usize = 32;

const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Encrypted Client Hello, and the extension of its early drafts.
const ENCRYPTED_HELLO: [u16; 2] = [0xfe0d, 0xffce];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// It cannot be read before there are so many bytes.
    Needs(usize),
    /// As it was sent.
    Name(String),
}

/// Reads what has arrived so far.
pub(super) fn read(bytes: &[u8]) -> Result<Hello, Refused> {
    let mut message = Vec::new();
    let mut at = 0;
    loop {
        let Some(header) = bytes.get(at..at + RECORD_HEADER) else {
            return needs(at + RECORD_HEADER);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let is_sane = header[0] == HANDSHAKE
            && header[1] == MAJOR_VERSION
            && (1..=LARGEST_RECORD).contains(&length);
        if !is_sane {
            return Err(Refused::NotTls);
        }
        at += RECORD_HEADER;
        let Some(part) = bytes.get(at..at + length) else {
            return needs(at + length);
        };
        message.extend_from_slice(part);
        at += length;
        if let Some(header) = message.first_chunk::<HELLO_HEADER>() {
            let [kind, high, middle, low] = *header;
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if kind != CLIENT_HELLO {
                return Err(Refused::NotTls);
            }
            if length > LARGEST {
                return Err(Refused::TooLong);
            }
            if let Some(hello) = message.get(HELLO_HEADER..HELLO_HEADER + length) {
                return name_in(Reader(hello)).map(Hello::Name);
            }
        }
    }
}

fn needs(length: usize) -> Result<Hello, Refused> {
    if length > LARGEST {
        Err(Refused::TooLong)
    } else {
        Ok(Hello::Needs(length))
    }
}

fn name_in(mut hello: Reader<'_>) -> Result<String, Refused> {
    hello.take(2 + RANDOM).ok_or(Refused::NotTls)?;
    let session = hello.vector8().ok_or(Refused::NotTls)?;
    let ciphers = hello.vector16().ok_or(Refused::NotTls)?;
    let compressions = hello.vector8().ok_or(Refused::NotTls)?;
    if session.0.len() > LARGEST_SESSION_ID
        || ciphers.is_empty()
        || !ciphers.0.len().is_multiple_of(2)
        || compressions.is_empty()
    {
        return Err(Refused::NotTls);
    }
    // Before TLS 1.2 a hello could end here.
    if hello.is_empty() {
        return Err(Refused::NoName);
    }
    let mut extensions = hello.vector16().ok_or(Refused::NotTls)?;
    if !hello.is_empty() {
        return Err(Refused::NotTls);
    }
    let mut name = None;
    while !extensions.is_empty() {
        let kind = extensions.number16().ok_or(Refused::NotTls)?;
        let body = extensions.vector16().ok_or(Refused::NotTls)?;
        if ENCRYPTED_HELLO.contains(&kind) {
            return Err(Refused::EncryptedHello);
        }
        if kind == SERVER_NAME && name.replace(host_in(body)?).is_some() {
            return Err(Refused::TwoNames);
        }
    }
    name.ok_or(Refused::NoName)
}

fn host_in(mut extension: Reader<'_>) -> Result<String, Refused> {
    let mut names = extension.vector16().ok_or(Refused::NotTls)?;
    if !extension.is_empty() {
        return Err(Refused::NotTls);
    }
    let kind = names.number8().ok_or(Refused::NoName)?;
    let name = names.vector16().ok_or(Refused::NotTls)?;
    if kind != HOST_NAME {
        return Err(Refused::NoName);
    }
    if !names.is_empty() {
        return Err(Refused::TwoNames);
    }
    String::from_utf8(name.0.to_vec()).map_err(|_| Refused::NotAName)
}

/// What is left to read.
#[derive(Debug, Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number16(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Option<Self> {
        let length = self.number8()?;
        self.take(length.into()).map(Self)
    }

    fn vector16(&mut self) -> Option<Self> {
        let length = self.number16()?;
        self.take(length.into()).map(Self)
    }
}

#[cfg(test)]
pub(super) mod samples;

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::samples::{Sample, in_records};
    use super::*;

    fn name(text: &str) -> Hello {
        Hello::Name(text.to_owned())
    }

    #[test]
    fn the_name_is_found_in_one_record_and_in_many() {
        let hello = Sample::of("Example.com").message();
        for size in [1, 2, 7, 100, 16_384] {
            assert_eq!(read(&in_records(&hello, size)), Ok(name("Example.com")));
        }
    }

    #[test]
    fn what_is_not_there_yet_is_waited_for_and_never_longer_than_needed() {
        let whole = in_records(&Sample::of("example.com").message(), 50);
        for end in 0..whole.len() {
            let Ok(Hello::Needs(length)) = read(&whole[..end]) else {
                panic!("{end}")
            };
            assert!(end < length && length <= whole.len());
        }
    }

    #[test]
    fn a_hello_without_a_name_or_with_two_is_refused() {
        let ask = |sample: Sample| read(&in_records(&sample.message(), 16_384));
        let mut none = Sample::of("example.com");
        none.extensions.clear();
        assert_eq!(ask(none.clone()), Err(Refused::NoName));
        none.has_extensions = false;
        assert_eq!(ask(none), Err(Refused::NoName));
        let mut twice = Sample::of("example.com");
        twice
            .extensions
            .extend(Sample::of("example.org").extensions);
        assert_eq!(ask(twice), Err(Refused::TwoNames));
        let mut listed = Sample::of("x");
        listed.extensions = vec![(0, b"\0\x08\0\0\x01a\0\0\x01b".to_vec())];
        assert_eq!(ask(listed), Err(Refused::TwoNames));
    }

    #[test]
    fn an_encrypted_hello_is_refused_whatever_name_is_outside() {
        for kind in ENCRYPTED_HELLO {
            for place in [0, 1] {
                let mut sample = Sample::of("example.com");
                sample.extensions.insert(place, (kind, vec![0; 40]));
                let message = in_records(&sample.message(), 16_384);
                assert_eq!(read(&message), Err(Refused::EncryptedHello));
            }
        }
    }

    #[test]
    fn a_hello_that_is_too_long_is_refused_before_it_is_there() {
        let mut sample = Sample::of("example.com");
        sample.extensions.push((21, vec![0; LARGEST]));
        let message = in_records(&sample.message(), 16_000);
        assert_eq!(read(&message[..16_005]), Err(Refused::TooLong));
        assert_eq!(read(&message[..9]), Ok(Hello::Needs(16_005)));
    }

    #[test]
    fn other_protocols_are_refused_with_their_first_bytes() {
        for bytes in [
            &b"\x16\x02\0\0\x05"[..],
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\xff\xff",
            b"\x15\x03\x01\0\x02\x02\x28",
            b"\x16\x03\x01\0\x04\x02\0\0\x01",
        ] {
            assert_eq!(read(bytes), Err(Refused::NotTls), "{bytes:?}");
        }
    }
}
