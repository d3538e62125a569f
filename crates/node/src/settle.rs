//! Undoing what a failed pause or resume has begun. What cannot be undone now is tried again until
//! it can: a sandbox must not stay for long in another state than the one that is told.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::Result;
use soulbox_types::{PauseMode, SandboxId, SandboxState};

use crate::{LocalNode, admission::Allocation, local::blocking, pause::on_record};

/// Times the number of the attempt, up to a minute.
const PAUSE: Duration = Duration::from_secs(1);

/// What is left to be undone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unsettled {
    /// It is told as paused, and some of it may run: with its memory, or started from its files.
    Running(PauseMode),
    /// It runs, and its folder says that it is paused.
    Record,
    /// It is paused, and its folder may not say so.
    Rest,
}

impl LocalNode {
    /// Takes a wake-up back.
    pub(crate) async fn return_to_pause(self: &Arc<Self>, id: &SandboxId, woken: PauseMode) {
        if let Err(error) = self.pause_again(id, woken).await {
            tracing::error!(sandbox_id = %id, %error, "it is told as paused, but some of it may run; trying again");
            let marked = self.change(id, |entry| {
                entry.unsettled = true;
                Ok(())
            });
            // Else it is gone.
            if marked.is_ok() {
                self.settle_later(id, Unsettled::Running(woken));
            }
        }
        self.reallocate(id, Allocation::while_paused(woken));
    }

    pub(crate) fn settle_later(self: &Arc<Self>, id: &SandboxId, what: Unsettled) {
        let (node, id) = (Arc::downgrade(self), id.clone());
        tokio::spawn(async move {
            for attempt in 1_u32.. {
                tokio::time::sleep(PAUSE * attempt.min(60)).await;
                let Some(node) = node.upgrade() else { return };
                match node.settle(&id, what).await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::error!(sandbox_id = %id, %error, attempt, ?what, "still not undone");
                    }
                }
            }
        });
    }

    /// Also when there is nothing to be undone any more.
    async fn settle(&self, id: &SandboxId, what: Unsettled) -> Result<()> {
        // One whose end has begun is taken down with everything.
        let Ok(transition_lock) = self.transition_lock(id) else {
            return Ok(());
        };
        let _ours = transition_lock.lock().await;
        let found = self.change(id, |entry| {
            Ok((entry.state(), entry.unsettled, entry.folder.clone()))
        });
        let Ok((state, unsettled, folder)) = found else {
            return Ok(());
        };
        match (what, state) {
            (Unsettled::Running(woken), SandboxState::Paused) if unsettled => {
                self.pause_again(id, woken).await?;
                self.change(id, |entry| {
                    entry.unsettled = false;
                    Ok(())
                })
            }
            (Unsettled::Record, SandboxState::Running) => blocking(move || folder.resumed()).await,
            (Unsettled::Rest, SandboxState::Paused) => {
                let paused = self.change(id, |entry| Ok(entry.paused))?;
                match paused {
                    Some(paused) => on_record(&folder, paused).await,
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    async fn pause_again(&self, id: &SandboxId, woken: PauseMode) -> Result<()> {
        let runtime = self.runtime_of(id)?;
        match woken {
            PauseMode::Filesystem => runtime.stop(id).await,
            PauseMode::Memory => match runtime.pause(id).await {
                Ok(()) => Ok(()),
                // On a disk that takes nothing, standing still is what can be had.
                Err(error) => runtime.hold(id).await.map_err(|_| error),
            },
        }
    }
}
