//! The index of an archive that may be an image.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    os::unix::fs::FileExt,
    path::{Component, Path, PathBuf},
};

use crate::{
    Error, Result,
    error::At,
    layer::{
        LayerError,
        tar_reader::{Kind, TarReader},
    },
};

/// A bundle has a handful of files per layer.
const MOST_PARTS: usize = 10_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Archive {
    parts: BTreeMap<String, Part>,
    /// Old versions of Docker write a layer that comes twice as a link to the first.
    links: BTreeMap<String, String>,
}

impl Archive {
    pub(crate) fn list(input: impl Read, most: u64) -> Result<Self, LayerError> {
        let mut archive = Self::default();
        let mut tar_reader = TarReader::new(input);
        let mut entries = 0;
        while let Some(entry) = tar_reader.next()? {
            entries += 1;
            if entries > most {
                return Err(LayerError::TooMany(most));
            }
            let Some(name) = plain_name(&entry.path) else {
                continue;
            };
            if entry.kind != Kind::Directory && !is_of_a_bundle(&name) {
                return Ok(Self::default());
            }
            if archive.parts.len() + archive.links.len() >= MOST_PARTS {
                return Err(LayerError::TooMany(MOST_PARTS as u64));
            }
            match entry.kind {
                Kind::File => {
                    let (offset, size) = (entry.offset, entry.size);
                    archive.parts.insert(name, Part { offset, size });
                }
                Kind::Symlink | Kind::HardLink => {
                    let target = str::from_utf8(&entry.link).unwrap_or_default();
                    let from_root = entry.kind == Kind::HardLink;
                    if let Some(target) = link_target(&name, target, from_root) {
                        archive.links.insert(name, target);
                    }
                }
                _ => {}
            }
        }
        Ok(archive)
    }

    pub(crate) fn may_be_bundle(&self) -> bool {
        self.part("manifest.json").is_some()
            || (self.part("index.json").is_some() && self.part("oci-layout").is_some())
    }

    pub(crate) fn part(&self, name: &str) -> Option<Part> {
        let name = plain_name(name.as_bytes())?;
        let target = self.links.get(&name).unwrap_or(&name);
        self.parts.get(target).copied()
    }

    pub(crate) fn text(&self, file: &File, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some(part) = self.part(name) else {
            return Ok(None);
        };
        if part.size > limit {
            return Err(Error::TooLarge {
                what: name.chars().take(100).collect(),
                limit,
            });
        }
        let mut bytes = vec![0; usize::try_from(part.size).unwrap_or_default()];
        file.read_exact_at(&mut bytes, part.offset)
            .at("read", Path::new(name))?;
        Ok(Some(bytes))
    }
}

/// What the tools that write bundles put into them; anything else is a root file system, which
/// then needs not be read to its end only to be listed.
fn is_of_a_bundle(name: &str) -> bool {
    let path = Path::new(name);
    let last = path.file_name().and_then(|name| name.to_str());
    let last = last.unwrap_or_default();
    let ends = [".json", ".tar", ".tar.gz", ".tar.zst"];
    name.starts_with("blobs/")
        || matches!(last, "oci-layout" | "repositories" | "VERSION" | "json")
        || ends.iter().any(|end| last.ends_with(end))
}

fn plain_name(raw: &[u8]) -> Option<String> {
    let name = str::from_utf8(raw).ok()?;
    let name = name.trim_start_matches("./");
    let odd = |part: Component<'_>| !matches!(part, Component::Normal(_));
    let path = Path::new(name);
    (!name.is_empty() && !path.components().any(odd)).then(|| name.to_owned())
}

fn link_target(name: &str, target: &str, from_root: bool) -> Option<String> {
    let mut path = if from_root {
        PathBuf::new()
    } else {
        Path::new(name).parent()?.to_owned()
    };
    for part in Path::new(target).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    path.to_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod properties;
