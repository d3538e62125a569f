//! The header of one entry, with an extended one before it where something does not fit.

use std::io::{self, Write};

use rustix::fs::Stat;
use tar::{EntryType, Header};

use crate::transfer::attributes::Attributes;

/// What a name or a link's target has in the plain header.
const SHORT: usize = 100;

pub(super) struct Described<'a> {
    name: &'a [u8],
    link: &'a [u8],
    kind: EntryType,
    size: u64,
    mode: u32,
    uid: u64,
    gid: u64,
    modified: u64,
    attributes: Attributes,
}

impl<'a> Described<'a> {
    /// A directory when the name ends so, else a file.
    pub(super) fn new(name: &'a [u8], found: &Stat) -> Self {
        Self {
            name,
            link: b"",
            kind: if name.ends_with(b"/") {
                EntryType::Directory
            } else {
                EntryType::Regular
            },
            size: 0,
            mode: found.st_mode & 0o7777,
            uid: found.st_uid.into(),
            gid: found.st_gid.into(),
            modified: u64::try_from(found.st_mtime).unwrap_or(0),
            attributes: Vec::new(),
        }
    }

    pub(super) fn with(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    pub(super) fn sized(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    pub(super) fn symlink(mut self, target: &'a [u8]) -> Self {
        (self.kind, self.link) = (EntryType::Symlink, target);
        self
    }

    pub(super) fn hard_link(mut self, first: &'a [u8]) -> Self {
        (self.kind, self.link) = (EntryType::Link, first);
        self
    }

    pub(super) fn fifo(mut self) -> Self {
        self.kind = EntryType::Fifo;
        self
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let records = self.records();
        if !records.is_empty() {
            let mut extended = plain_header(b"./PaxHeaders", b"", EntryType::XHeader);
            extended.set_size(records.len() as u64);
            extended.set_mode(0o644);
            extended.set_cksum();
            out.write_all(extended.as_bytes())?;
            out.write_all(&records)?;
            let padding = (512 - records.len() % 512) % 512;
            out.write_all(&vec![0; padding])?;
        }
        let mut header = plain_header(self.name, self.link, self.kind);
        header.set_size(self.size);
        header.set_mode(self.mode);
        header.set_uid(self.uid);
        header.set_gid(self.gid);
        header.set_mtime(self.modified);
        header.set_cksum();
        out.write_all(header.as_bytes())
    }

    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        if self.name.len() > SHORT {
            add_record(&mut records, b"path", self.name);
        }
        if self.link.len() > SHORT {
            add_record(&mut records, b"linkpath", self.link);
        }
        for (name, value) in &self.attributes {
            let name = [b"SCHILY.xattr.", name.as_slice()].concat();
            add_record(&mut records, &name, value);
        }
        records
    }
}

/// As much of both names as fits. GNU's, which has room for large numbers.
fn plain_header(name: &[u8], link: &[u8], kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    let bytes = header.as_mut_bytes();
    for (field, text) in [(0, name), (157, link)] {
        let length = text.len().min(SHORT);
        bytes[field..field + length].copy_from_slice(&text[..length]);
    }
    header.set_size(0);
    header.set_mode(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// The length of a record counts its own digits.
fn add_record(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let rest = name.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() > length {
        length += 1;
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(name);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_length_counts_itself() {
        for size in [1, 90, 91, 92, 93, 94, 990, 991, 992] {
            let mut records = Vec::new();
            add_record(&mut records, b"path", &vec![b'x'; size]);
            let text = String::from_utf8(records.clone()).unwrap();
            let length = text.split(' ').next().unwrap();
            assert_eq!(length, records.len().to_string());
        }
    }
}
