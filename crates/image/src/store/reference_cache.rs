//! Caches what a reference resolved to when it was last pulled.
//!
//! One entry per set of credentials: an image that needs credentials must not be served to somebody
//! without them.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use crate::{
    Credentials, Result, digest::Digest, error::At, image::Settings, reference::Reference,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ResolvedReference {
    /// For people who look at the file.
    pub(crate) reference: String,
    pub(crate) digest: String,
    /// Lowest first, by the digests of their content.
    pub(crate) layers: Vec<Digest>,
    #[serde(flatten)]
    pub(crate) settings: Settings,
}

pub(crate) struct ReferenceCache {
    folder: PathBuf,
    temporary: PathBuf,
    key: hmac::Key,
}

impl std::fmt::Debug for ReferenceCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReferenceCache")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Names a reference as somebody with certain credentials sees it.
#[derive(Debug, Clone)]
pub(crate) struct Key(String);

impl ReferenceCache {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        Ok(Self {
            folder: dir.join("manifests"),
            temporary: dir.join("tmp"),
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret(&dir.join("key"))?),
        })
    }

    pub(crate) fn key(&self, reference: &Reference, credentials: Option<&Credentials>) -> Key {
        let mut mac = hmac::Context::with_key(&self.key);
        mac.update(reference.to_string().as_bytes());
        mac.update(b"\n");
        if let Some(credentials) = credentials {
            credentials.fingerprint(&mut mac);
        }
        Key(hex::encode(mac.sign()))
    }

    pub(crate) fn get(&self, key: &Key) -> Option<ResolvedReference> {
        read(&self.path(key))
    }

    pub(crate) fn put(&self, key: &Key, found: &ResolvedReference) -> Result<()> {
        let path = self.path(key);
        let text = serde_json::to_vec_pretty(found).map_err(io::Error::other);
        let text = text.at("write", &path)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.temporary).at("write", &path)?;
        file.write_all(&text)
            .and_then(|()| file.as_file().sync_data())
            .at("write", &path)?;
        file.persist(&path)
            .map_err(|error| error.error)
            .at("write", &path)?;
        Ok(())
    }

    /// Forgets references for which `keep` says no, and what cannot be read.
    pub(super) fn forget(&self, keep: impl Fn(&ResolvedReference) -> bool) -> Result<()> {
        for entry in std::fs::read_dir(&self.folder).at("list", &self.folder)? {
            let path = entry.at("list", &self.folder)?.path();
            if !read(&path).is_some_and(|found| keep(&found)) {
                std::fs::remove_file(&path).at("remove", &path)?;
            }
        }
        Ok(())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.json", key.0))
    }
}

fn read(path: &Path) -> Option<ResolvedReference> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Made at the first start.
fn secret(path: &Path) -> Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let mut file = options.open(path).at("open", path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).at("read", path)?;
    if bytes.len() < 32 {
        bytes = vec![0; 32];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| io::Error::other("no random numbers"))
            .at("make", path)?;
        file.set_len(0)
            .and_then(|()| io::Seek::rewind(&mut file))
            .and_then(|()| file.write_all(&bytes))
            .and_then(|()| file.sync_all())
            .at("write", path)?;
    }
    Ok(bytes)
}
