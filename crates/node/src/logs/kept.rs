//! The log of a sandbox on the disk: what outlives a pause, and the server.
//!
//! Two files in its state folder, each with one writer: `log.json` has what the node noted, and
//! `envd-log.json` what envd said until the last pause, while which nobody inside answers. Nobody waits
//! for them, and nothing depends on them: one that cannot be read is an empty one.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use soulbox_runtime::{LogEntry, Result, Runtime};
use soulbox_types::{ENVD_PORT, SandboxId, SandboxSpec, SandboxState, Secret, UnixMillis};
use tokio::sync::OwnedMutexGuard;

use super::from_envd;
use crate::{LocalNode, folder::Folder, local::blocking};

const INTERVAL: Duration = Duration::from_secs(1);
/// A pause does not wait for an envd that does not answer.
const BEFORE_A_PAUSE: Duration = Duration::from_millis(250);
/// An end waits even less.
const AT_THE_END: Duration = Duration::from_millis(100);
/// Of envd's part on the disk; envd itself keeps half as much.
const MAX_BYTES: usize = 256 << 10;
const MAX_ENTRIES: usize = 2000;

/// All entries once, in their order: a log that was kept and one that goes on have some in common.
pub(crate) fn merged(parts: impl IntoIterator<Item = Vec<LogEntry>>) -> Vec<LogEntry> {
    let mut seen = HashSet::new();
    let mut all: Vec<LogEntry> = parts
        .into_iter()
        .flatten()
        .filter(|entry| seen.insert(serde_json::to_string(entry).unwrap_or_default()))
        .collect();
    all.sort_by_key(|entry| entry.at);
    all
}

/// The newest that fit.
pub(super) fn bounded(mut entries: Vec<LogEntry>) -> Vec<LogEntry> {
    let mut bytes = 0;
    let fitting = entries
        .iter()
        .rev()
        .take(MAX_ENTRIES)
        .take_while(|entry| {
            bytes += serde_json::to_string(entry).map_or(0, |json| json.len() + 1);
            bytes <= MAX_BYTES
        })
        .count();
    entries.split_off(entries.len() - fitting)
}

/// With what is kept already.
fn keep_envd(folder: &Folder, said: Vec<LogEntry>) {
    let entries = bounded(merged([folder.envd_log(), said]));
    if let Err(error) = folder.keep_envd_log(&entries) {
        tracing::debug!(%error, "what envd said is not kept");
    }
}

/// The way to the log of an envd that is there to be asked.
pub(crate) struct AnsweringEnvd {
    id: SandboxId,
    runtime: Arc<dyn Runtime>,
    token: Secret,
}

impl AnsweringEnvd {
    pub(crate) async fn log(&self) -> Vec<LogEntry> {
        match self.runtime.dial(&self.id, ENVD_PORT).await {
            Ok(stream) => from_envd(stream, &self.token).await,
            Err(_) => Vec::new(),
        }
    }
}

/// What is to be kept of the log of one that is about to be paused.
pub(crate) async fn said_before_a_pause(envd: Option<AnsweringEnvd>) -> Vec<LogEntry> {
    let Some(envd) = envd else { return Vec::new() };
    let asked = tokio::time::timeout(BEFORE_A_PAUSE, envd.log()).await;
    asked.unwrap_or_default()
}

/// Nobody waits for it but the next change of state, for which the lock is: so it does not end
/// meanwhile.
pub(crate) fn keep_said(folder: Folder, said: Vec<LogEntry>, lock: OwnedMutexGuard<()>) {
    if !said.is_empty() {
        tokio::task::spawn_blocking(move || {
            keep_envd(&folder, said);
            drop(lock);
        });
    }
}

impl LocalNode {
    /// None while it does not run: nobody inside would answer.
    pub(crate) fn answering_envd(&self, id: &SandboxId) -> Option<AnsweringEnvd> {
        let (tier, token) = {
            let entries = self.entries().lock();
            let entry = entries.get(id)?;
            let running = entry.state() == SandboxState::Running;
            running.then(|| (entry.spec.tier, entry.spec.node_token.clone()))?
        };
        Some(AnsweringEnvd {
            id: id.clone(),
            runtime: self.runtime(tier).ok()?,
            token,
        })
    }

    /// What is known of one that ends, for whoever asks later. `answers`: somebody inside may.
    pub(crate) async fn last_words(
        &self,
        spec: &SandboxSpec,
        folder: Folder,
        answers: bool,
    ) -> Vec<LogEntry> {
        let envd = answers.then(|| self.runtime(spec.tier).ok()).flatten();
        let envd = envd.map(|runtime| AnsweringEnvd {
            id: spec.id.clone(),
            runtime,
            token: spec.node_token.clone(),
        });
        let said = async {
            let Some(envd) = envd else { return Vec::new() };
            let asked = tokio::time::timeout(AT_THE_END, envd.log()).await;
            asked.unwrap_or_default()
        };
        let kept = blocking(move || Ok(folder.envd_log()));
        let (said, kept) = tokio::join!(said, kept);
        merged([kept.unwrap_or_default(), said])
    }

    /// What envd said before the last pause. The one that was just now may still be written.
    pub(crate) async fn kept_of_envd(
        &self,
        id: &SandboxId,
        folder: Folder,
    ) -> Result<Vec<LogEntry>> {
        if let Ok(lock) = self.transition_lock(id) {
            // A change of state that takes longer is not waited for.
            drop(tokio::time::timeout(BEFORE_A_PAUSE, lock.lock()).await);
        }
        blocking(move || Ok(folder.envd_log())).await
    }

    /// Writes what was noted since the last time.
    pub(crate) async fn keep_notes(self: &Arc<Self>) {
        let unsaved: Vec<SandboxId> = {
            let entries = self.entries().lock();
            let unsaved = entries.values().filter(|entry| entry.has_unsaved_notes());
            unsaved.map(|entry| entry.id().clone()).collect()
        };
        for id in unsaved {
            // One that is being paused, resumed or ended has its turn later, if there is one.
            let Ok(lock) = self.transition_lock(&id) else {
                continue;
            };
            let Ok(_held) = lock.try_lock() else { continue };
            let Some((folder, notes)) = self.entries().lock().get_mut(&id).and_then(|mut entry| {
                let notes = entry.take_unsaved_notes()?;
                Some((entry.folder.clone(), notes))
            }) else {
                continue;
            };
            let written = blocking(move || folder.keep_log(&notes)).await;
            if let Err(error) = written {
                tracing::debug!(sandbox_id = %id, %error, "its log is not kept");
            }
        }
    }
}

/// For as long as the node is there.
pub(crate) async fn keep_all(node: Weak<LocalNode>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(node) = node.upgrade() else { return };
        node.keep_notes().await;
        let ended = node.ended_logs();
        // Nothing but a clean folder depends on it.
        let _dropped = blocking(move || {
            ended.drop_old(UnixMillis::now());
            Ok(())
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use soulbox_runtime::LogLevel;

    fn entry(at: u64, message: &str) -> LogEntry {
        LogEntry {
            at: UnixMillis(at),
            level: LogLevel::Info,
            logger: "process".to_owned(),
            message: message.to_owned(),
            fields: [("pid".to_owned(), "1".to_owned())].into(),
        }
    }

    fn messages(entries: &[LogEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.message.as_str()).collect()
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let parent = tempfile::tempdir().unwrap();
        let id: SandboxId = "iabc".parse().unwrap();
        fs_err::create_dir(parent.path().join("iabc")).unwrap();
        let folder = Folder::new(parent.path(), &id);
        (parent, folder)
    }

    #[test]
    fn what_was_kept_and_what_goes_on_is_one_log() {
        let kept = vec![entry(1, "a"), entry(2, "b")];
        let live = vec![entry(2, "b"), entry(2, "c"), entry(4, "e")];
        let all = merged([kept, live, vec![entry(3, "d")]]);
        assert_eq!(messages(&all), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn pause_after_pause_the_log_grows_up_to_its_bound_and_loses_the_oldest() {
        let (_parent, folder) = folder();
        for pause in 0..6 {
            let said = (0..500).map(|i| entry(pause * 1000 + i, &"x".repeat(400)));
            keep_envd(&folder, said.collect());
        }
        let kept = folder.envd_log();
        assert_eq!(kept.last().unwrap().at, UnixMillis(5499));
        let size = serde_json::to_string(&kept).unwrap().len();
        assert!(size <= MAX_BYTES && size > MAX_BYTES / 2, "{size}");
    }

    #[test]
    fn a_log_that_cannot_be_read_is_empty_and_the_next_is_whole() {
        let (_parent, folder) = folder();
        assert!(folder.envd_log().is_empty() && folder.log().is_none());
        for name in ["log.json", "envd-log.json"] {
            fs_err::write(folder.path().join(name), "[{").unwrap();
        }
        assert!(folder.envd_log().is_empty() && folder.log().is_none());
        keep_envd(&folder, vec![entry(1, "a")]);
        assert_eq!(messages(&folder.envd_log()), ["a"]);
    }
}
