//! The key by which clients know us again. It protects nothing, since the pipe is the user's own; but
//! clients insist on one, and complain when it changes.

use std::{
    fmt, fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use russh::keys::{PrivateKey, ssh_key};
use ssh_key::{LineEnding, private::Ed25519Keypair};

const FILE: &str = "ssh_host_ed25519_key";

pub struct HostKey(PrivateKey);

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKey")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot use {}", .path.display())]
pub struct HostKeyError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl HostKey {
    /// The one in this folder of the user's; made at the first use, readable for nobody else.
    pub fn load_or_make(folder: &Path) -> Result<Self, HostKeyError> {
        let path = folder.join(FILE);
        load_or_make(folder, &path)
            .map(Self)
            .map_err(|source| HostKeyError { path, source })
    }

    pub(crate) fn private(&self) -> &PrivateKey {
        &self.0
    }
}

fn load_or_make(folder: &Path, path: &Path) -> io::Result<PrivateKey> {
    match fs::read_to_string(path) {
        Ok(text) => return PrivateKey::from_openssh(&text).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
    let text = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(key),
        // Another session was first.
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(path)?;
            PrivateKey::from_openssh(&text).map_err(io::Error::other)
        }
        Err(error) => Err(error.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_for_its_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("soulbox");
        let first = HostKey::load_or_make(&folder).unwrap();
        let again = HostKey::load_or_make(&folder).unwrap();
        assert_eq!(first.0.public_key(), again.0.public_key());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(FILE))), (0o700, 0o600));
    }

    #[test]
    fn what_is_no_key_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "rubbish").unwrap();
        let error = HostKey::load_or_make(folder.path()).unwrap_err();
        assert!(error.to_string().contains(FILE));
        assert_eq!(fs::read(folder.path().join(FILE)).unwrap(), b"rubbish");
    }
}
