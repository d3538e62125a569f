//! Finding what survived a restart of the server, and finishing off what did not.

use std::sync::Arc;

use soulbox_runtime::{Adopted, LogLevel, Result};
use soulbox_types::{Kept, Purpose, SandboxId, SandboxState};
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

pub(crate) async fn adopt_all(node: &Arc<LocalNode>) -> Result<()> {
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
    if found.ended.is_none() && outlives_its_server(&found) {
        match take_up(&node, &found, &folder).await {
            Ok(Some(entry)) if entry.state == SandboxState::Paused => {
                node.insert_paused(entry);
                return true;
            }
            Ok(Some(entry)) => {
                node.insert_running(entry);
                return true;
            }
            Ok(None) => {}
            Err(error) => tracing::error!(sandbox = %id, %error, "the sandbox cannot be adopted"),
        }
    }
    remove(&node, &id, &folder, found.running.as_ref()).await;
    false
}

/// Only a user's. A build's has lost its builder. One that waited goes too, ready as it may be: the
/// server may have died after it was promised to a create, whose row then has its id for good. So
/// does one whose start command was under way: nobody would run it again, or wait for it.
fn outlives_its_server(found: &Found) -> bool {
    // With both, it was being handed over, and nobody was answered.
    found.spec.purpose == Purpose::User && found.warm.is_none() && !found.unready
}

/// The sandbox as its folder says that it should be; `None` when too little is left of it.
async fn take_up(node: &LocalNode, found: &Found, folder: &Folder) -> Result<Option<Entry>> {
    let (runtime, id) = (node.runtime(), &found.spec.id);
    let adopted = match &found.running {
        Some(running) => runtime.adopt(&found.spec, running).await?,
        None => Adopted::Gone,
    };
    let entry = |state| Entry::new(found.spec.clone(), state, runtime.tier(), folder.clone());
    let Some(mut paused) = found.paused else {
        if adopted == Adopted::Gone {
            return Ok(None);
        }
        // A pause that was cut short may have left it frozen.
        runtime.resume(id).await?;
        let mut entry = entry(SandboxState::Running);
        entry.note(LogLevel::Info, "adopted after a restart of the server");
        return Ok(Some(entry));
    };
    match (paused.kept, adopted) {
        (Kept::Memory, Adopted::Alive) => runtime.pause(id).await?,
        (Kept::Filesystem, Adopted::Alive) => runtime.stop(id).await?,
        (kept, Adopted::Gone) => {
            if !folder.has_disk() {
                return Ok(None);
            }
            if kept == Kept::Memory {
                tracing::warn!(sandbox = %id, "its memory is gone (a reboot?); its files are kept");
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
    Ok(Some(entry))
}

async fn remove(
    node: &LocalNode,
    id: &SandboxId,
    folder: &Folder,
    running: Option<&soulbox_runtime::Running>,
) {
    let destroyed = node.runtime().destroy(id, running).await;
    if let Err(error) = destroyed.and_then(|()| folder.remove()) {
        tracing::error!(sandbox = %id, %error, "could not remove what is left; the next start tries again");
    }
}
