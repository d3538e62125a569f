//! A checksum of a sparse file that does not depend on where its holes are.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

const BLOCK: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    pub hex: String,
    /// What is not zero, in whole blocks.
    pub bytes: u64,
}

/// BLAKE3 over the file's length and every block that is not all zero, with its position.
pub fn checksum(path: &Path) -> io::Result<Checksum> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hash = blake3::Hasher::new();
    hash.update(&length.to_le_bytes());
    let (mut bytes, mut at) = (0, 0);
    let mut buffer = vec![0; BLOCK];
    while let Some(data) = next_data(&file, at)? {
        at = data - data % BLOCK as u64;
        let wanted = BLOCK.min(usize::try_from(length - at).unwrap_or(BLOCK));
        file.read_exact_at(&mut buffer[..wanted], at)?;
        if buffer[..wanted].iter().any(|b| *b != 0) {
            hash.update(&at.to_le_bytes());
            hash.update(&buffer[..wanted]);
            bytes += wanted as u64;
        }
        at += wanted as u64;
    }
    Ok(Checksum {
        hex: hash.finalize().to_hex().to_string(),
        bytes,
    })
}

fn next_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(from)) {
        Ok(position) => Ok(Some(position)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_do_not_matter_and_content_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let file = |name: &str| {
            let file = File::create(path(name)).unwrap();
            file.set_len(1_000_000).unwrap();
            file.write_all_at(b"data", 500_000).unwrap();
            file
        };
        file("sparse");
        file("full").write_all_at(&vec![0; 200_000], 0).unwrap();
        file("other").write_all_at(b"x", 999_999).unwrap();
        file("moved").write_all_at(b"\0data", 500_000).unwrap();
        let sum = |name: &str| checksum(&path(name)).unwrap().hex;
        assert_eq!(sum("sparse"), sum("full"));
        assert_ne!(sum("sparse"), sum("other"));
        assert_ne!(sum("sparse"), sum("moved"));
    }
}
