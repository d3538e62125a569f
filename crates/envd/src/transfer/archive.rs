//! Reads a tar, plain or gzip, entry by entry.
//!
//! The `tar` crate knows the headers. Its own reader of whole archives is not used: it takes
//! extended headers of any length into memory, and an archive is untrusted.

mod extended;

use std::{
    borrow::Cow,
    io::{self, BufRead, Read},
};

use flate2::bufread::MultiGzDecoder;
use tar::Header;

use self::extended::Extended;
use super::{Error, attributes::Attributes, show};

const BLOCK: usize = 512;
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Of all extended headers and long names before one entry: there may be any number of them.
const MAX_EXTENDED: u64 = 1 << 20;
const NOBODY: u32 = 65534;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    /// Of a link: where it leads.
    pub(super) link: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: i64,
    pub(super) attributes: Attributes,
}

/// Plain, or gzip by its first two bytes.
pub(super) fn decompress<'a>(input: &'a mut dyn BufRead) -> Result<Box<dyn Read + 'a>, Error> {
    let mut start = Vec::new();
    (&mut *input)
        .take(GZIP.len() as u64)
        .read_to_end(&mut start)
        .map_err(broken)?;
    let is_gzip = start == GZIP;
    let whole = io::Cursor::new(start).chain(input);
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else {
        Box::new(whole)
    })
}

pub(super) struct Archive<R> {
    input: R,
    /// Of the current entry's content.
    left: u64,
    padding: u64,
}

impl<R: Read> Archive<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            left: 0,
            padding: 0,
        }
    }

    /// The next entry, whose content can then be read from here. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Error> {
        let mut extended = Extended::default();
        let mut room = MAX_EXTENDED;
        loop {
            self.skip_content()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = header.entry_size().map_err(broken)?;
            self.set_content(size);
            match header.as_bytes()[156] {
                b'x' => {
                    let records = self.short_content(&mut room)?;
                    extended.read_records(&records)?;
                }
                b'L' => extended.path = Some(text(self.short_content(&mut room)?)),
                b'K' => extended.link = Some(text(self.short_content(&mut room)?)),
                // For all that follows: nothing in it that we would use.
                b'g' => {}
                kind => {
                    if let Some(size) = extended.size {
                        self.set_content(size);
                    }
                    return entry(&header, kind, extended).map(Some);
                }
            }
        }
    }

    /// `None` at the end, which is a block of zeros: without one, the archive was cut.
    fn header(&mut self) -> Result<Option<Header>, Error> {
        let mut header = Header::new_old();
        let block: &mut [u8; BLOCK] = header.as_mut_bytes();
        self.input.read_exact(block).map_err(broken)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let blank = |(at, byte): (usize, &u8)| match at {
            148..156 => u32::from(b' '),
            _ => u32::from(*byte),
        };
        let sum: u32 = block.iter().enumerate().map(blank).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(Error::Archive(
                "it is not a tar archive, or a damaged one".to_owned(),
            ));
        }
        Ok(Some(header))
    }

    fn set_content(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn skip_content(&mut self) -> Result<(), Error> {
        let rest = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut (&mut self.input).take(rest), &mut io::sink());
        if skipped.map_err(broken)? < rest {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    fn short_content(&mut self, room: &mut u64) -> Result<Vec<u8>, Error> {
        let left = room.checked_sub(self.left);
        *room = left
            .ok_or_else(|| Error::Archive(format!("an extended header of {} bytes", self.left)))?;
        let mut content = Vec::new();
        self.read_to_end(&mut content).map_err(broken)?;
        Ok(content)
    }
}

/// The content of the current entry. One that ends too early is an error.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = to.len().min(usize::try_from(self.left).unwrap_or(to.len()));
        let read = self.input.read(&mut to[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn entry(header: &Header, kind: u8, extended: Extended) -> Result<Entry, Error> {
    let path = match extended.path {
        Some(path) => path,
        None => header.path_bytes().into_owned(),
    };
    let link = match extended.link {
        Some(link) => link,
        None => header
            .link_name_bytes()
            .map(Cow::into_owned)
            .unwrap_or_default(),
    };
    let kind = match kind {
        // So were directories marked, before there was a letter for them.
        b'0' | 0 if path.ends_with(b"/") => Kind::Directory,
        b'0' | 0 | b'7' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        b'3' | b'4' => {
            return Err(Error::Archive(format!("'{}' is a device", show(&path))));
        }
        other => {
            let what = format!(
                "'{}' is of an unknown kind {:?}",
                show(&path),
                char::from(other)
            );
            return Err(Error::Archive(what));
        }
    };
    // Strange ids are nobody's; the largest one means "leave it as it is" to the kernel.
    let id = |extended: Option<u64>, plain: io::Result<u64>| {
        extended
            .or(plain.ok())
            .and_then(|id| u32::try_from(id).ok())
            .filter(|id| *id != u32::MAX)
            .unwrap_or(NOBODY)
    };
    Ok(Entry {
        kind,
        link,
        mode: header.mode().map_err(broken)? & 0o7777,
        uid: id(extended.uid, header.uid()),
        gid: id(extended.gid, header.gid()),
        modified: extended
            .modified
            .or_else(|| i64::try_from(header.mtime().ok()?).ok())
            .unwrap_or(0),
        attributes: extended.attributes,
        path,
    })
}

/// GNU's long names end with a zero.
fn text(mut content: Vec<u8>) -> Vec<u8> {
    while content.last() == Some(&0) {
        content.pop();
    }
    content
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are handed over, by map_err"
)]
pub(super) fn broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Archive("the archive is cut off".to_owned()),
        _ => Error::Archive(error.to_string()),
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
