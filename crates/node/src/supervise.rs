//! One task per running sandbox: its deadline and its death.
//!
//! The task only notices; what follows runs in a task of its own, because pausing ends the
//! supervisor. A paused sandbox has none.

use std::sync::Weak;

use soulbox_runtime::Exit;
use soulbox_types::{EndReason, OnTimeout, SandboxId, UnixMillis};
use tokio::sync::watch;

use crate::LocalNode;

pub(crate) async fn supervise(
    node: Weak<LocalNode>,
    id: SandboxId,
    mut deadline: watch::Receiver<UnixMillis>,
) {
    let Some(runtime) = node.upgrade().and_then(|n| n.runtime_of(&id).ok()) else {
        return;
    };
    let exit = runtime.wait(&id);
    tokio::pin!(exit);
    loop {
        let end = *deadline.borrow_and_update();
        tokio::select! {
            () = sleep_until(end) => {
                tokio::spawn(expire(node, id.clone()));
                return;
            }
            result = &mut exit => {
                let detail = match result {
                    Ok(Exit { description }) => description,
                    Err(error) => error.to_string(),
                };
                tokio::spawn(died(node, id.clone(), detail));
                return;
            }
            // The sender is dropped with the entry: the sandbox is gone by other means.
            changed = deadline.changed() => if changed.is_err() { return },
        }
    }
}

/// The deadline is wall-clock time, which can jump: look at the clock at least every minute.
async fn sleep_until(end: UnixMillis) {
    loop {
        let left = end.remaining(UnixMillis::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(std::time::Duration::from_mins(1))).await;
    }
}

async fn expire(node: Weak<LocalNode>, id: SandboxId) {
    let Some(node) = node.upgrade() else { return };
    match node.on_timeout(&id) {
        Some(OnTimeout::Pause(keep)) => node.pause_at_deadline(&id, keep).await,
        Some(OnTimeout::Kill) => {
            node.finish(&id, EndReason::Expired, "its time was over")
                .await;
        }
        None => {}
    }
}

async fn died(node: Weak<LocalNode>, id: SandboxId, detail: String) {
    if let Some(node) = node.upgrade() {
        node.finish(&id, EndReason::Died, &detail).await;
    }
}
