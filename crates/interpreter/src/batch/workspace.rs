//! A program's own folder, gone when it has run.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::timeout;

use super::account::Account;
use crate::kernel::Process;

const REMOVAL: Duration = Duration::from_mins(1);

pub(super) struct Workspace {
    path: PathBuf,
    account: Account,
}

impl Workspace {
    pub(super) fn create(account: &Account) -> io::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("soulbox-run-{}", uuid::Uuid::new_v4().simple()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let workspace = Self {
            path,
            account: account.clone(),
        };
        workspace.give(&workspace.path)?;
        Ok(workspace)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Written before any program of the user runs here: nothing can be in the way.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        if !is_plain(name) {
            return Err(io::Error::other("it is not the plain name of a file"));
        }
        let path = self.path.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?
            .write_all(text.as_bytes())?;
        self.give(&path)
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        match self.account.ids {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0'])
}

impl Drop for Workspace {
    /// By `rm` and as the user: it manages trees of any depth, and can reach nothing that the user
    /// could not.
    fn drop(&mut self) {
        let mut command = Command::new("rm");
        command
            .args(["-rf", "--"])
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some((uid, gid)) = self.account.ids {
            command.uid(uid).gid(gid);
        }
        let path = std::mem::take(&mut self.path);
        tokio::task::spawn_local(async move {
            if let Ok(process) = command.spawn().and_then(|child| Process::adopt(&child)) {
                let _too_much = timeout(REMOVAL, process.exited()).await;
            }
            // Its parent is not the user's: the emptied folder itself is ours to remove.
            let _not_empty = fs::remove_dir(&path);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_written() {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_plain(".env") && is_plain("data 1.csv"));
    }
}
