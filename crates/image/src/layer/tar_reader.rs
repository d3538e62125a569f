//! Reads a tar, entry by entry.
//!
//! The `tar` crate decodes header fields; walking from header to header is done here, because its
//! iterator reads extended headers into memory whatever their size, and a few kilobytes of
//! an untrusted layer can unpack to gigabytes of extended header.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::{LayerError, name::shown, pax::Extensions};

const BLOCK: usize = 512;
/// Of long names and extended headers. Go's reader, which every registry's images pass, has the
/// same.
const MAX_EXTENSION: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    Fifo,
    /// A character or block device.
    Device,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) size: u64,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
    /// Of its data, from the start of the archive.
    pub(crate) offset: u64,
}

pub(crate) struct TarReader<R> {
    input: R,
    position: u64,
    /// Data of the current entry that nobody has read, and the padding behind it.
    left: u64,
    padding: u64,
}

impl<R: Read> TarReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            position: 0,
            left: 0,
            padding: 0,
        }
    }

    /// What of the current entry's data was not read is skipped.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, LayerError> {
        let mut path = None;
        let mut link = None;
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let kind = header.entry_type();
            match kind.as_byte() {
                b'L' => path = Some(self.text(&header)?),
                b'K' => link = Some(self.text(&header)?),
                b'x' => {
                    let bytes = self.extension(&header)?;
                    extensions = Extensions::parse(&bytes).map_err(|reason| {
                        let entry = shown(&header.path_bytes());
                        let reason = reason.to_owned();
                        LayerError::Entry { entry, reason }
                    })?;
                }
                // Comments for the whole archive; nobody puts more into an image.
                b'g' => {
                    self.extension(&header)?;
                }
                _ => return self.entry(&header, path, link, extensions).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        path: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
        extensions: Extensions,
    ) -> Result<Entry, LayerError> {
        let path = extensions
            .path
            .or(path)
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let bad = |reason: &str| LayerError::Entry {
            entry: shown(&path),
            reason: reason.to_owned(),
        };
        let kind = match header.entry_type() {
            // Before there was a type for directories, a slash at the end made one.
            EntryType::Regular if path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Link => Kind::HardLink,
            EntryType::Symlink => Kind::Symlink,
            EntryType::Char | EntryType::Block => Kind::Device,
            EntryType::Directory => Kind::Directory,
            EntryType::Fifo => Kind::Fifo,
            EntryType::GNUSparse => return Err(bad(SPARSE)),
            _ => return Err(bad("its type is unknown")),
        };
        if extensions.sparse {
            return Err(bad(SPARSE));
        }
        let field = |read: io::Result<u64>| read.map_err(|_| bad("its header cannot be read"));
        let size = match (kind, extensions.size) {
            (Kind::File, Some(size)) => size,
            (Kind::File, None) => field(header.entry_size())?,
            // Some tools write a size here, but never data.
            _ => 0,
        };
        let mtime = match extensions.mtime {
            Some(mtime) => mtime,
            None => (field(header.mtime())?.try_into().unwrap_or(0), 0),
        };
        let entry = Entry {
            kind,
            link: extensions
                .link
                .or(link)
                .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))
                .unwrap_or_default(),
            mode: header
                .mode()
                .map_err(|_| bad("its header cannot be read"))?
                & 0o7777,
            uid: match extensions.uid {
                Some(uid) => uid,
                None => field(header.uid())?,
            },
            gid: match extensions.gid {
                Some(gid) => gid,
                None => field(header.gid())?,
            },
            mtime,
            size,
            xattrs: extensions.xattrs,
            offset: self.position,
            path,
        };
        self.expect(size)?;
        Ok(entry)
    }

    /// Data of the current entry; 0 at its end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, LayerError> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        loop {
            match self.input.read(buffer) {
                Ok(0) => return Err(early()),
                Ok(count) => {
                    self.left -= count as u64;
                    self.position += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LayerError::reading(&error)),
            }
        }
    }

    pub(crate) fn into_inner(self) -> R {
        self.input
    }

    fn skip(&mut self) -> Result<(), LayerError> {
        self.left += std::mem::take(&mut self.padding);
        let mut buffer = [0; 8 << 10];
        while self.read(&mut buffer)? > 0 {}
        Ok(())
    }

    fn expect(&mut self, size: u64) -> Result<(), LayerError> {
        let full = size.checked_next_multiple_of(BLOCK as u64);
        // Half of the space of numbers is more than enough, and sums stay in it.
        let full = full.filter(|full| *full < 1 << 62);
        let full = full.ok_or_else(|| LayerError::Damaged("an entry has an absurd size".into()))?;
        self.left = size;
        self.padding = full - size;
        Ok(())
    }

    /// The next header. `None` at the end: a block of zeros, or simply no more bytes.
    fn header(&mut self) -> Result<Option<Header>, LayerError> {
        let mut header = Header::new_old();
        let mut have = 0;
        while have < BLOCK {
            let rest = header.as_mut_bytes().get_mut(have..).unwrap_or_default();
            match self.input.read(rest) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(early()),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LayerError::reading(&error)),
            }
        }
        self.position += BLOCK as u64;
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let (before, after) = (bytes.get(..148), bytes.get(156..));
        let counted = before.into_iter().chain(after).flatten();
        // The checksum counts its own eight bytes as spaces.
        let sum = counted.map(|byte| u32::from(*byte)).sum::<u32>() + 8 * u32::from(b' ');
        match header.cksum() {
            Ok(said) if said == sum => Ok(Some(header)),
            _ => Err(LayerError::Damaged("it is not a tar archive".to_owned())),
        }
    }

    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, LayerError> {
        let size = header
            .entry_size()
            .map_err(|error| LayerError::Damaged(error.to_string()))?;
        if size > MAX_EXTENSION {
            return Err(LayerError::Damaged("an extended header is too long".into()));
        }
        self.expect(size)?;
        let mut bytes = Vec::new();
        let mut buffer = [0; 4 << 10];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(bytes),
                count => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
    }

    /// A long name, which ends with a NUL byte.
    fn text(&mut self, header: &Header) -> Result<Vec<u8>, LayerError> {
        let mut bytes = self.extension(header)?;
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        Ok(bytes)
    }
}

const SPARSE: &str = "sparse entries are not supported: make the archive without --sparse";

fn early() -> LayerError {
    LayerError::reading(&io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod properties;
