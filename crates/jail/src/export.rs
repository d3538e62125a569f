//! What a stopped sandbox added to its template, as layers for others.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use soulbox_runtime::{AddedLayer, Error, Result};
use soulbox_types::guest::{EXPORT, ExportSpec, InitStatus};
use tokio::{
    io::{AsyncWriteExt, BufWriter},
    process::Command,
    time::timeout,
};

use soulbox_machine::blocking;

/// A disk of some gigabytes on a busy machine.
const LIMIT: Duration = Duration::from_mins(15);
/// How the copying process's own words for ENOSPC end; names from the disk come before.
const DISK_FULL: &str = "(os error 28)";

/// `overlays`: where the template's are mounted, in their order. On error, and when the caller
/// goes away, nothing is left at `target`.
pub(crate) async fn export(
    init: &Path,
    disk: &Path,
    overlays: Vec<PathBuf>,
    target: &Path,
) -> Result<Vec<AddedLayer>> {
    let spec = ExportSpec {
        disk: disk.to_owned(),
        overlays: overlays.len(),
        target: target.to_owned(),
    };
    if target.exists() {
        return Err(Error::InUse {
            what: target.display().to_string(),
            users: "an earlier export".to_owned(),
        });
    }
    let unfinished = Unfinished(Some(target.to_owned()));
    let exported = timeout(LIMIT, copy(init, &spec)).await;
    let numbers = match exported.unwrap_or(Err(Error::Timeout {
        what: "copying what the sandbox added".into(),
        limit: LIMIT,
    })) {
        Ok(numbers) => numbers,
        Err(error) => {
            unfinished.remove().await;
            return Err(error);
        }
    };
    unfinished.keep();
    let layers = overlays.into_iter().enumerate();
    Ok(layers
        .filter(|(number, _)| numbers.contains(number))
        .map(|(number, mounted_at)| AddedLayer {
            target: mounted_at,
            directory: target.join(number.to_string()),
        })
        .collect())
}

async fn copy(init: &Path, spec: &ExportSpec) -> Result<Vec<usize>> {
    let failed = |source| Error::io("could not copy what the sandbox added", source);
    let text = serde_json::to_vec(spec).map_err(|e| failed(std::io::Error::other(e)))?;
    let mut copying = Command::new(init)
        .arg(EXPORT)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(stdin) = copying.stdin.take() {
        // Flushed by the shutdown. When it fails early, its status says why.
        let mut stdin = BufWriter::new(stdin);
        let _closed_early = stdin.write_all(&text).await;
        let _closed_early = stdin.shutdown().await;
    }
    let output = copying.wait_with_output().await.map_err(failed)?;
    match serde_json::from_slice(&output.stdout) {
        Ok(InitStatus::Exported { overlays }) => Ok(overlays),
        Ok(InitStatus::Failed { message, .. }) if message.ends_with(DISK_FULL) => {
            Err(Error::NoCapacity {
                what: "the data folder's disk is full, or can hold no more files (inodes): write \
                       less, or let the operator free space there"
                    .to_owned(),
                retry_after: Duration::from_secs(30),
            })
        }
        Ok(InitStatus::Failed { step, message }) => {
            Err(failed(std::io::Error::other(format!("{step}: {message}"))))
        }
        Ok(InitStatus::Started { .. } | InitStatus::Waiting) | Err(_) => {
            Err(failed(last_words(&output)))
        }
    }
}

fn last_words(output: &Output) -> std::io::Error {
    let text = String::from_utf8_lossy(&output.stderr);
    std::io::Error::other(format!("{}: {}", output.status, text.trim()))
}

/// A target that is not whole yet.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn keep(mut self) {
        self.0 = None;
    }

    async fn remove(mut self) {
        if let Some(path) = self.0.take() {
            let removed = blocking(move || {
                remove(&path);
                Ok(())
            });
            // A panic in there is the only way to fail, and it was told.
            let _told = removed.await.is_ok();
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // The copying process dies with the caller, a moment later perhaps: off this thread.
            std::thread::spawn(move || remove(&path));
        }
    }
}

fn remove(path: &Path) {
    /// A killed process may be in the middle of making something.
    const ATTEMPTS: u32 = 50;
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "half an export is left");
                return;
            }
            // Once more: the copying process may have made it anew.
            Ok(()) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
