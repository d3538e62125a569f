//! Finding what survived a restart of the server, and finishing off what did not.

use std::sync::Arc;

use soulbox_runtime::{Adopted, End, LogLevel};
use soulbox_types::{EndReason, Kept, Purpose, SandboxId, SandboxState, UnixMillis};
use tokio::task::JoinSet;

use crate::{
    LocalNode,
    admission::Holding,
    entry::Entry,
    folder,
    folder::{Folder, Found},
};

/// Adoption opens a few files per sandbox; thousands at once would only queue.
const AT_ONCE: usize = 16;

pub(crate) async fn adopt_all(node: &Arc<LocalNode>) -> soulbox_runtime::Result<()> {
    let ids = folder::list(node.sandboxes_dir())?;
    let mut waiting = ids.into_iter();
    let mut tasks = JoinSet::new();
    let (mut alive, mut gone) = (0_u32, 0_u32);
    loop {
        while tasks.len() < AT_ONCE {
            let Some(id) = waiting.next() else { break };
            tasks.spawn(adopt_one(Arc::clone(node), id));
        }
        match tasks.join_next().await {
            None => break,
            Some(Ok(true)) => alive += 1,
            Some(Ok(false)) => gone += 1,
            Some(Err(error)) => tracing::error!(%error, "an adoption failed"),
        }
    }
    if alive + gone > 0 {
        tracing::info!(alive, gone, "adopted the sandboxes of an earlier run");
    }
    let keep: Vec<SandboxId> = node.ids();
    node.runtime().reclaim(&keep).await
}

/// Whether the sandbox lives on. One that cannot be read or found is removed: what nobody can
/// reach must not use the machine.
async fn adopt_one(node: Arc<LocalNode>, id: SandboxId) -> bool {
    let folder = Folder::new(node.sandboxes_dir(), &id);
    let found = match folder.load() {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(sandbox = %id, %error, "the state folder cannot be read");
            None
        }
    };
    let Some(found) = found else {
        remove(&node, &id, &folder, None).await;
        return false;
    };
    // Another run began it: that run knew why. It may have died while it removed the folder.
    if let Some(end) = found.ended.clone().or_else(|| node.ends().of(&id)) {
        finish_off(&node, &found, &folder, &end).await;
        return false;
    }
    match take_up_if_usable(&node, &found, &folder).await {
        Ok(entry) if entry.state() == SandboxState::Paused => node.insert_paused(entry),
        Ok(entry) => node.insert_running(entry),
        Err(gone) => {
            let end = End {
                spec: Arc::new(found.spec.clone()),
                reason: gone.reason,
                detail: gone.detail,
                at: UnixMillis::now(),
            };
            finish_off(&node, &found, &folder, &end).await;
            return false;
        }
    }
    true
}

/// Why a sandbox cannot be taken up.
struct Gone {
    reason: EndReason,
    detail: String,
}

impl Gone {
    fn new(reason: EndReason, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { reason, detail }
    }
}

async fn take_up_if_usable(
    node: &LocalNode,
    found: &Found,
    folder: &Folder,
) -> Result<Entry, Gone> {
    if !outlives_its_server(found) {
        let detail = "the server stopped while it was being made";
        return Err(Gone::new(EndReason::CreateFailed, detail));
    }
    let id = &found.spec.id;
    let mut taken = take_up(node, found, folder).await;
    if let Err(error) = &taken {
        // It may have died under our hands: then a second look finds that.
        tracing::warn!(sandbox = %id, %error, "the sandbox cannot be adopted; looking again");
        taken = take_up(node, found, folder).await;
    }
    taken.unwrap_or_else(|error| {
        tracing::error!(sandbox = %id, %error, "the sandbox cannot be adopted");
        let detail = format!("it could not be taken up by a server that started: {error}");
        Err(Gone::new(EndReason::Lost, detail))
    })
}

/// Only a user's. A build's has lost its builder. One that waited goes too, ready as it may be: the
/// server may have died after it was promised to a create, whose row then has its id for good. So
/// does one whose start command was under way: nobody would run it again, or wait for it.
fn outlives_its_server(found: &Found) -> bool {
    // With both, it was being handed over, and nobody was answered.
    found.spec.purpose == Purpose::User && found.warm.is_none() && !found.unready
}

/// The sandbox as its folder says that it should be, if enough is left of it.
async fn take_up(
    node: &LocalNode,
    found: &Found,
    folder: &Folder,
) -> soulbox_runtime::Result<Result<Entry, Gone>> {
    let (runtime, id) = (node.runtime(), &found.spec.id);
    let adopted = match &found.running {
        Some(running) => runtime.adopt(&found.spec, running).await?,
        None => Adopted::Gone,
    };
    let entry = |state| Entry::new(found.spec.clone(), state, runtime.tier(), folder.clone());
    let Some(mut paused) = found.paused else {
        if let Some(gone) = gone_while_running(found, &adopted) {
            return Ok(Err(gone));
        }
        // A pause that was cut short may have left it frozen.
        runtime.resume(id).await?;
        let mut entry = entry(SandboxState::Running);
        entry.note(LogLevel::Info, "adopted after a restart of the server");
        return Ok(Ok(entry));
    };
    match (paused.kept, adopted) {
        (Kept::Memory, Adopted::Alive) => runtime.pause(id).await?,
        (Kept::Filesystem, Adopted::Alive) => runtime.stop(id).await?,
        (kept, Adopted::Gone | Adopted::Rebooted) => {
            if !folder.has_disk() {
                let detail = "it was at rest, and its disk was not there any more";
                return Ok(Err(Gone::new(EndReason::Lost, detail)));
            }
            if kept == Kept::Memory {
                tracing::warn!(sandbox = %id, "its memory is gone; its files are kept");
                paused.kept = Kept::Filesystem;
                folder.paused(&paused)?;
            }
        }
    }
    let mut entry = entry(SandboxState::Paused);
    entry.paused = Some(paused);
    entry.holding = Holding::at_rest(paused.kept);
    entry.note(
        LogLevel::Info,
        "adopted, at rest, after a restart of the server",
    );
    Ok(Ok(entry))
}

fn gone_while_running(found: &Found, adopted: &Adopted) -> Option<Gone> {
    match adopted {
        Adopted::Alive => None,
        Adopted::Gone if found.running.is_none() => Some(Gone::new(
            EndReason::CreateFailed,
            "the server stopped while it was being made",
        )),
        Adopted::Gone => Some(Gone::new(
            EndReason::Died,
            "its first process ended while no server was watching",
        )),
        Adopted::Rebooted => Some(Gone::new(EndReason::Lost, "the machine was restarted")),
    }
}

/// Why it ended stays, until the control plane has it on record. Not of those that nobody but the
/// last server knew.
async fn finish_off(node: &LocalNode, found: &Found, folder: &Folder, end: &End) {
    let id = &found.spec.id;
    if found.spec.purpose != Purpose::User {
        return remove(node, id, folder, found.running.as_ref()).await;
    }
    tracing::info!(sandbox = %id, reason = end.reason.as_str(), end.detail, "the sandbox is gone");
    // A full disk must not keep what nobody can use.
    if let Err(error) = folder.ended(end) {
        tracing::warn!(sandbox = %id, %error, "could not mark the end of a sandbox");
    }
    let destroyed = node.runtime().destroy(id, found.running.as_ref()).await;
    report(
        id,
        destroyed.and_then(|()| folder.remove_into(node.ends(), end)),
    );
}

async fn remove(
    node: &LocalNode,
    id: &SandboxId,
    folder: &Folder,
    running: Option<&soulbox_runtime::Running>,
) {
    let destroyed = node.runtime().destroy(id, running).await;
    report(id, destroyed.and_then(|()| folder.remove()));
}

fn report(id: &SandboxId, removed: soulbox_runtime::Result<()>) {
    if let Err(error) = removed {
        tracing::error!(sandbox = %id, %error, "could not remove what is left; the next start tries again");
    }
}
