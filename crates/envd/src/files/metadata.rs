//! A file's metadata: extended attributes `user.e2b.<key>`.

use std::{collections::BTreeMap, os::fd::AsFd, path::Path};

use http::HeaderMap;
use rustix::{
    fs::{XattrFlags, flistxattr, fremovexattr, fsetxattr, lgetxattr, llistxattr},
    io::Errno,
};

use crate::http::reply::Failure;

const HEADER: &str = "x-metadata-";
const PREFIX: &str = "user.e2b.";
const MAX_KEY: usize = 246;
const MAX_TOTAL: usize = 4096;
/// The kernel's own limit on one file's attribute names, and on one value.
const KERNEL_MAX: usize = 65536;

pub(crate) type Metadata = BTreeMap<String, String>;

/// The metadata that an upload asks for.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Metadata, Failure> {
    let mut metadata = Metadata::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(HEADER) else {
            continue;
        };
        let value = value
            .to_str()
            .ok()
            .filter(|value| printable(value))
            .ok_or_else(|| {
                Failure::bad_request(format!("metadata value of '{key}' is not printable ASCII"))
            })?;
        if key.is_empty() || key.len() > MAX_KEY || !printable(key) {
            return Err(Failure::bad_request(format!(
                "metadata key '{key}' must have 1 to {MAX_KEY} printable ASCII characters"
            )));
        }
        metadata.insert(key.to_owned(), value.to_owned());
    }
    let total: usize = metadata
        .iter()
        .map(|(k, v)| PREFIX.len() + k.len() + v.len())
        .sum();
    if total > MAX_TOTAL {
        return Err(Failure::bad_request(format!(
            "metadata takes {total} bytes, more than {MAX_TOTAL}"
        )));
    }
    Ok(metadata)
}

fn printable(text: &str) -> bool {
    text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}

/// Makes `metadata` the file's whole set. What is stored is returned: nothing, where the file
/// system has no attributes. Touches nothing when nothing changes, as watchers would see it.
pub(super) fn replace(file: impl AsFd, metadata: &Metadata) -> Metadata {
    let mut names = Vec::with_capacity(256);
    if list(|buffer| flistxattr(&file, buffer), &mut names).is_err() {
        names.clear();
    }
    for name in ours(&names) {
        let key = name.strip_prefix(PREFIX).unwrap_or_default();
        if !metadata.contains_key(key) {
            let _vanished = fremovexattr(&file, name);
        }
    }
    let set = |(key, value): (&String, &String)| {
        fsetxattr(
            &file,
            format!("{PREFIX}{key}"),
            value.as_bytes(),
            XattrFlags::empty(),
        )
        .is_ok()
        .then(|| (key.clone(), value.clone()))
    };
    metadata.iter().filter_map(set).collect()
}

pub(crate) fn read(path: &Path) -> Metadata {
    let mut names = Vec::with_capacity(256);
    if list(|buffer| llistxattr(path, buffer), &mut names).is_err() {
        return Metadata::new();
    }
    let value = |name: &str| {
        let mut value = Vec::with_capacity(256);
        list(|buffer| lgetxattr(path, name, buffer), &mut value).ok()?;
        let key = name.strip_prefix(PREFIX)?.to_owned();
        Some((key, String::from_utf8(value).ok()?))
    };
    ours(&names).filter_map(value).collect()
}

fn ours(names: &[u8]) -> impl Iterator<Item = &str> {
    names
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| name.len() > PREFIX.len() && name.starts_with(PREFIX))
}

/// Calls with a growing buffer until the answer fits.
fn list(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
    to: &mut Vec<u8>,
) -> rustix::io::Result<()> {
    let mut size = 256;
    loop {
        to.resize(size, 0);
        match call(to) {
            Ok(length) => {
                to.truncate(length);
                return Ok(());
            }
            Err(Errno::RANGE) if size < KERNEL_MAX => size *= 16,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (k.parse::<http::HeaderName>().unwrap(), v.parse().unwrap()))
            .collect()
    }

    #[test]
    fn keys_are_lower_case_and_other_headers_are_not_metadata() {
        let found = from_headers(&headers(&[("X-Metadata-Author", "me"), ("X-Other", "x")]));
        assert_eq!(
            found.unwrap(),
            Metadata::from([("author".into(), "me".into())])
        );
    }

    #[test]
    fn too_long_keys_and_sets_are_refused() {
        let long = format!("x-metadata-{}", "k".repeat(MAX_KEY + 1));
        assert!(from_headers(&headers(&[(&long, "v")])).is_err());
        assert!(from_headers(&headers(&[("x-metadata-a", &"v".repeat(MAX_TOTAL))])).is_err());
    }

    #[test]
    fn the_stored_set_is_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let one = Metadata::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        if replace(file.as_file(), &one).is_empty() {
            return; // the temporary directory has no extended attributes
        }
        assert_eq!(read(file.path()), one);
        replace(file.as_file(), &Metadata::from([("b".into(), "3".into())]));
        assert_eq!(
            read(file.path()),
            Metadata::from([("b".into(), "3".into())])
        );
        replace(file.as_file(), &Metadata::new());
        assert_eq!(read(file.path()), Metadata::new());
    }
}
