//! Files that are written atomically, with the right permissions from the start.

use std::{io, os::unix::fs::PermissionsExt as _, path::Path};

use fs_err as fs;

/// Readable by its owner alone.
pub(crate) const SECRET: u32 = 0o600;
pub(crate) const PUBLIC: u32 = 0o644;

/// Replaces the file in one step. A crash, also of the machine, leaves the old one or the new one.
pub(crate) fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    soulbox_durable::write(path, mode, content)
}

/// As [`write`], but only if the content differs: a start that changes nothing must work on a full
/// disk.
pub(crate) fn write_if_other(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    }
    write(path, mode, content)
}

/// `None` when there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(dir.path().join("secret.new"), "left by a crash").unwrap();
        for content in ["one", "two"] {
            write(&path, SECRET, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
        }
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_not_there_is_not_an_error() {
        assert_eq!(read(Path::new("/nonexistent/x")).unwrap(), None);
    }
}
