//! One-line files, with errors that name them.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    path::Path,
};

use crate::{Error, Result};

/// No file of ours comes near; `cgroup.procs` is the only one that grows.
const LONGEST: u64 = 4 << 20;

pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Writes with a single `write`, as the kernel's parsers expect, and never makes a file.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| io_error("write to", path, source))
}

/// Writes where the kernel has the file. Returns whether it had.
pub(crate) fn write_if_present(path: &Path, text: &str) -> Result<bool> {
    match write(path, text) {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    OpenOptions::new()
        .read(true)
        .open(path)
        .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
        .map_err(|source| io_error("read", path, source))?;
    Ok(text)
}

pub(crate) fn read_number(path: &Path) -> Result<u64> {
    let text = read(path)?;
    text.trim().parse().map_err(|_| Error::Unexpected {
        path: path.to_owned(),
        text,
    })
}

/// `None` where the kernel does not have the file.
pub(crate) fn read_number_if_present(path: &Path) -> Result<Option<u64>> {
    match read_number(path) {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

/// The value of `key` in a file of `key value` lines; 0 when the kernel does not report it.
pub(crate) fn read_key(path: &Path, key: &str) -> Result<u64> {
    Ok(key_in(&read(path)?, key))
}

pub(crate) fn key_in(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_matched_whole() {
        let text = "oom 1\noom_kill 2\noom_kill_disable 0\n";
        assert_eq!(key_in(text, "oom_kill"), 2);
        assert_eq!(key_in(text, "oom_group_kill"), 0);
    }

    #[test]
    fn writing_never_makes_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.max");
        assert!(write(&path, "1").unwrap_err().is_not_found());
        assert!(!write_if_present(&path, "1").unwrap());
        assert!(!path.exists());
    }
}
