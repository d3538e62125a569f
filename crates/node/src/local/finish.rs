//! A sandbox ends for good.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{End, Error, LogEntry, LogLevel, NodeEvent, Result};
use soulbox_types::{EndReason, Purpose, SandboxId, SandboxState, UnixMillis};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::{DESTROY_LIMIT, LocalNode, RETRY_PAUSE, blocking};
use crate::{
    entry::Entry,
    folder::Folder,
    logs,
    stuck_ends::{END_LIMIT, START_LIMIT, WatchedEnd},
};

/// How long a create that has failed waits for its end; its client waits for the reason.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(5);

/// An end that somebody asked for.
enum Begun {
    Absent,
    /// It turns true when nothing is left.
    ByAnother(watch::Receiver<bool>),
    Here {
        end: End,
        folder: Folder,
        /// It ran until now: somebody inside may answer.
        ran: bool,
        made: watch::Receiver<bool>,
        transition_lock: Arc<Mutex<()>>,
    },
}

impl LocalNode {
    /// Ends a sandbox for good. Several callers may meet here: the first does the work, the others
    /// wait for it, for as long as a caller of an end waits.
    pub(crate) async fn finish(self: &Arc<Self>, id: &SandboxId, reason: EndReason, detail: &str) {
        self.finish_if(id, reason, detail, |_| true).await;
    }

    /// Ends one that was nobody's. A create may have come with its id meanwhile, and have made its
    /// own: that one stays.
    pub(crate) async fn finish_nobodys(self: &Arc<Self>, id: &SandboxId, detail: &str) {
        self.finish_if(id, EndReason::Killed, detail, Entry::is_nobodys)
            .await;
    }

    /// Ends a sandbox in a task of its own, and waits for that for a moment. `false`: it goes on.
    pub(crate) async fn finish_or_leave(
        self: &Arc<Self>,
        id: &SandboxId,
        reason: EndReason,
        detail: &str,
    ) -> bool {
        let (node, target, detail) = (Arc::clone(self), id.clone(), detail.to_owned());
        let ended = tokio::spawn(async move { node.finish(&target, reason, &detail).await });
        let ended = timeout(GIVE_UP_LIMIT, ended).await.is_ok();
        if !ended {
            tracing::error!(sandbox_id = %id, "what could not be made takes long to end");
        }
        ended
    }

    async fn finish_if(
        self: &Arc<Self>,
        id: &SandboxId,
        reason: EndReason,
        detail: &str,
        is_it: fn(&Entry) -> bool,
    ) {
        let (end, folder, ran, mut made, transition_lock) =
            match self.begin_end(id, reason, detail, is_it) {
                Begun::Absent => return,
                Begun::ByAnother(mut gone) => {
                    let _or_later = timeout(DESTROY_LIMIT, gone.wait_for(|gone| *gone)).await;
                    return;
                }
                Begun::Here {
                    end,
                    folder,
                    ran,
                    made,
                    transition_lock,
                } => (end, folder, ran, made, transition_lock),
            };
        // What is still being made cannot be torn down. The runtime bounds its own start.
        let starting = self.stuck_ends.watch(START_LIMIT);
        let _made = made.wait_for(|made| *made).await.is_ok();
        drop(starting);
        // A pause or resume under way ends first; it is bounded too.
        let _ours = transition_lock.lock().await;
        match end.spec.purpose {
            Purpose::Warm => {
                // Nobody's work is lost, and the log should not read as if it were.
                tracing::info!(sandbox_id = %id, detail, "ending a waiting sandbox nobody had yet");
            }
            Purpose::User | Purpose::Build => {
                tracing::info!(sandbox_id = %id, reason = reason.as_str(), detail, "ending the sandbox");
            }
        }
        let last_words = self.hear_last_words(&end, &folder, ran).await;
        let torn_down = self.tear_down_for_good(&end, &folder);
        tokio::pin!(torn_down);
        if timeout(END_LIMIT, &mut torn_down).await.is_err() {
            tracing::error!(sandbox_id = %id, "the sandbox was killed {} s ago and is still there; the kernel's log may say why", END_LIMIT.as_secs());
            torn_down.await;
        }
        if let Some(entries) = last_words {
            let (logs, spec) = (self.ended_logs(), Arc::clone(&end.spec));
            // Before anybody is told that it is gone, who may then ask for its log.
            let kept = blocking(move || {
                logs.keep(&spec.tenant, &spec.id, entries);
                Ok(())
            });
            drop(kept.await);
        }
        self.pool.forget(id, reason);
        let purpose = match self.entries.lock().remove(id) {
            Some(entry) => {
                entry.gone.send_replace(true);
                entry.spec.purpose
            }
            None => Purpose::User,
        };
        self.admission.something_changed();
        if purpose == Purpose::User {
            self.emit(NodeEvent::Ended {
                id: id.clone(),
                reason,
                detail: detail.to_owned(),
            });
        }
    }

    /// Ends a sandbox in a task of its own, and waits for that. Fine when there is none.
    pub(crate) async fn end_and_wait(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        let Some(mut gone) = self.entries.lock().get(id).map(|e| e.gone.subscribe()) else {
            return Ok(());
        };
        let (node, target) = (self.owned()?, id.clone());
        tokio::spawn(async move { node.finish(&target, reason, "asked for").await });
        match timeout(DESTROY_LIMIT, gone.wait_for(|gone| *gone)).await {
            // The sender is dropped with the entry, which happens last.
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Timeout {
                what: "the sandbox's end".into(),
                limit: DESTROY_LIMIT,
            }),
        }
    }

    /// From here on nobody finds it, and its reason stands.
    fn begin_end(
        &self,
        id: &SandboxId,
        reason: EndReason,
        detail: &str,
        is_it: fn(&Entry) -> bool,
    ) -> Begun {
        let mut entries = self.entries.lock();
        let Some(mut entry) = entries.get_mut(id).filter(|entry| is_it(entry)) else {
            return Begun::Absent;
        };
        let ran = entry.state() == SandboxState::Running;
        if entry.transition(SandboxState::Destroying).is_err() {
            return Begun::ByAnother(entry.gone.subscribe());
        }
        // Its death is part of this end, not another one.
        entry.leave_alone();
        entry.ending.cancel();
        let end = End {
            spec: Arc::clone(&entry.spec),
            reason,
            detail: detail.to_owned(),
            at: UnixMillis::now(),
        };
        entry.end = Some(end.clone());
        Begun::Here {
            end,
            folder: entry.folder.clone(),
            ran,
            made: entry.made.subscribe(),
            transition_lock: Arc::clone(&entry.transition_lock),
        }
    }

    /// Its log, with why it ended; none of one that nobody may ask about.
    async fn hear_last_words(
        &self,
        end: &End,
        folder: &Folder,
        ran: bool,
    ) -> Option<Vec<LogEntry>> {
        if !is_recorded(end) {
            return None;
        }
        let answers = ran && end.reason != EndReason::Died;
        let said = self.last_words(&end.spec, folder.clone(), answers);
        let said = if ran {
            let (said, ()) = tokio::join!(said, self.last_stats(&end.spec.id));
            said
        } else {
            said.await
        };
        let mut notes = {
            let mut entries = self.entries.lock();
            let mut entry = entries.get_mut(&end.spec.id)?;
            let detail = match end.reason {
                // As the caller says it.
                EndReason::Killed => String::new(),
                _ => format!(": {}", end.detail),
            };
            let message = format!("sandbox ended ({}){detail}", end.reason.as_str());
            entry.note(LogLevel::Info, message);
            entry.notes()
        };
        // Nothing comes after it, whatever the clock inside says.
        let last = notes.pop();
        let mut all = logs::merged([notes, said]);
        all.extend(last);
        Some(all)
    }

    /// Tries until nothing is left.
    async fn tear_down_for_good(&self, end: &End, folder: &Folder) {
        let mut waiting = Some(self.stuck_ends.watch(END_LIMIT));
        let mut unwritten = u64::MAX;
        let mut attempt = 0_u32;
        while let Err(error) = self.tear_down(end, folder, &mut waiting).await {
            attempt += 1;
            // A disk that is slow to take what was written is not a kernel that is stuck.
            let left = self.unwritten_bytes(end).await;
            if waiting.is_some() && left > 0 && left < unwritten {
                unwritten = left;
                waiting = Some(self.stuck_ends.watch(END_LIMIT));
            }
            // The pause grows to a minute: what fails for long is not mended by haste.
            tracing::error!(sandbox_id = %end.spec.id, %error, attempt, "could not end the sandbox; trying again");
            tokio::time::sleep(RETRY_PAUSE * attempt.min(60)).await;
        }
    }

    async fn unwritten_bytes(&self, end: &End) -> u64 {
        match self.runtime(end.spec.tier) {
            Ok(runtime) => runtime.unwritten_bytes(&end.spec.id).await,
            Err(_) => 0,
        }
    }

    async fn tear_down(
        &self,
        end: &End,
        folder: &Folder,
        waiting: &mut Option<WatchedEnd<'_>>,
    ) -> Result<()> {
        let id = &end.spec.id;
        let (marking, mark) = (folder.clone(), end.clone());
        let running = blocking(move || {
            // A full disk must not keep a sandbox alive: the marker is for the next start.
            if let Err(error) = marking.ended(&mark) {
                tracing::warn!(%error, "could not mark the end of a sandbox");
            }
            marking.running()
        })
        .await
        .unwrap_or_default();
        let runtime = self.runtime(end.spec.tier)?;
        runtime.destroy(id, running.as_ref()).await?;
        // Nothing runs any more; a disk that fails does not mean that the kernel is stuck.
        *waiting = None;
        let (removing, ends, end) = (folder.clone(), self.ends.clone(), end.clone());
        blocking(move || {
            if is_recorded(&end) {
                removing.remove_into(&ends, &end)
            } else {
                removing.remove()
            }
        })
        .await
    }
}

/// Whether somebody may ask why it ended: of one that failed to be made, its create was told.
pub(super) fn is_recorded(end: &End) -> bool {
    end.spec.purpose == Purpose::User && end.reason != EndReason::CreateFailed
}
