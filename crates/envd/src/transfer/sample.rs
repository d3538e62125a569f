//! Archives for tests, honest and hostile.

use std::io::Write;

use tar::{EntryType, Header};

#[derive(Default)]
pub(super) struct Tar(Vec<u8>);

impl Tar {
    /// Names are taken as they are: `tar`'s own builder would refuse the hostile ones.
    fn entry(mut self, kind: EntryType, name: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_uid(1234);
        header.set_gid(4321);
        header.set_mtime(1_000_000_000);
        header.set_cksum();
        self.0.write_all(header.as_bytes()).unwrap();
        self.0.write_all(content).unwrap();
        let padding = (512 - content.len() % 512) % 512;
        self.0.resize(self.0.len() + padding, 0);
        self
    }

    pub(super) fn file(self, name: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, name, "", 0o640, content.as_bytes())
    }

    pub(super) fn directory(self, name: &str, mode: u32) -> Self {
        self.entry(EntryType::Directory, name, "", mode, b"")
    }

    pub(super) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, 0o777, b"")
    }

    pub(super) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, 0o640, b"")
    }

    pub(super) fn fifo(self, name: &str) -> Self {
        self.entry(EntryType::Fifo, name, "", 0o600, b"")
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}
