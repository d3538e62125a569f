//! Finding what survived a restart of the server, and finishing off what did not.
//!
//! In three steps, so that a start that cannot go through leaves everything as it was:
//! 1. every folder is read;
//! 2. those that should be there are taken up;
//! 3. only then are others ended, removed or put aside ([`crate::quarantine`]).
//!
//! What is there and has a disk is removed only when it is known to have ended, or known never to
//! have been anybody's.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use soulbox_runtime::{Adopted, End, Error, LogLevel, Paused, Result, Running};
use soulbox_types::{
    EndReason, OnTimeout, PauseMode, Purpose, SandboxId, SandboxSpec, SandboxState, Tier,
    UnixMillis,
};
use tokio::task::JoinSet;

use crate::{
    LocalNode,
    admission::Allocation,
    entry::Entry,
    folder,
    folder::{Damaged, Folder, Found, Loaded},
    local::blocking,
    quarantine::Fault,
};

/// Adoption opens a few files per sandbox; thousands at once would only queue.
const AT_ONCE: usize = 16;
/// For whoever recovers one whose time is over, or nearly, to get to it before it ends.
const AFTER_RECOVERY: Duration = Duration::from_mins(10);
/// Whoever connects at the last moment goes first.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(crate) async fn adopt_all(node: &Arc<LocalNode>) -> Result<()> {
    let looking = Arc::clone(node);
    let looked = blocking(move || look_at_all(&looking)).await?;
    let decided = decide_all(node, looked).await?;
    let (alive, gone, broken) = carry_out_all(node, decided).await;
    if alive + gone + broken > 0 {
        tracing::info!(
            alive,
            gone,
            broken,
            "adopted the sandboxes of an earlier run"
        );
    }
    let mut keep: Vec<SandboxId> = node.ids();
    keep.extend(node.quarantine().left_alone());
    for runtime in node.runtimes().all() {
        runtime.reclaim(&keep).await?;
    }
    Ok(())
}

/// One that was left alone, once more. On error it stays so.
pub(crate) async fn try_again(node: &Arc<LocalNode>, id: &SandboxId) -> Result<()> {
    let (looking, of) = (Arc::clone(node), id.clone());
    let looked = blocking(move || look_at(&looking, of)).await?;
    let mut decided = decide(node, looked).await?;
    if let Verdict::Finish(found, end) = &decided.verdict
        && found.ended.is_none()
    {
        // Its owner was told that its files are kept.
        let fault = Fault {
            spec: Some(found.spec.clone()),
            reason: end.detail.clone(),
            unsure: false,
        };
        decided.verdict = Verdict::PutAside(fault, found.running.clone());
    }
    if let Verdict::Adopt(entry) = &mut decided.verdict {
        give_time(entry, &decided.folder).await;
    }
    carry_out(node, decided).await;
    Ok(())
}

/// While it was broken nobody could move its deadline.
async fn give_time(entry: &mut Entry, folder: &Folder) {
    let later = UnixMillis::now().plus(AFTER_RECOVERY);
    let paused_on_purpose = entry.paused.is_some() && folder.is_paused();
    if paused_on_purpose || entry.spec.deadline >= later {
        return;
    }
    let writing = folder.clone();
    if let Err(error) = blocking(move || writing.lease(later)).await {
        // Another start finds the old one.
        tracing::warn!(sandbox_id = %entry.id(), %error, "the time that it got is not on its disk");
    }
    Arc::make_mut(&mut entry.spec).deadline = later;
    entry.deadline.send_replace(later);
    entry.note(
        LogLevel::Warn,
        format!(
            "recovered: it has {} minutes, unless its timeout is set",
            AFTER_RECOVERY.as_secs() / 60
        ),
    );
}

/// A folder as it was read.
struct Looked {
    id: SandboxId,
    folder: Folder,
    loaded: Result<Loaded>,
}

/// A folder, and what is to be done about it.
struct Decided {
    id: SandboxId,
    folder: Folder,
    verdict: Verdict,
}

enum Verdict {
    /// It goes on.
    Adopt(Box<Entry>),
    /// Of a sandbox that somebody may ask for.
    Finish(Box<Found>, End),
    /// Nobody ever knew of it.
    Remove(Option<Running>),
    /// Its processes end, its files are kept.
    PutAside(Fault, Option<Running>),
    /// Nothing is touched: another try may find it whole.
    Leave(Fault),
}

fn look_at_all(node: &LocalNode) -> Result<Vec<Looked>> {
    let ids = folder::list(node.sandboxes_dir())?;
    ids.into_iter().map(|id| look_at(node, id)).collect()
}

/// Blocking. An error is about this server, not about the sandbox.
fn look_at(node: &LocalNode, id: SandboxId) -> Result<Looked> {
    let folder = node.folder(&id);
    let mut loaded = folder.load();
    if let Ok(Loaded::Whole(found)) = &mut loaded
        && found.ended.is_none()
    {
        // Another run began it: that run knew why. It may have died while it removed the folder.
        match node.ends().of(&id) {
            Ok(end) => found.ended = end,
            Err(error) => loaded = Err(error),
        }
    }
    match loaded {
        Err(error) if is_short_of_resources(&error) => Err(error),
        loaded => Ok(Looked { id, folder, loaded }),
    }
}

async fn decide_all(node: &Arc<LocalNode>, looked: Vec<Looked>) -> Result<Vec<Decided>> {
    let (mut waiting, mut decided) = (looked.into_iter(), Vec::new());
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < AT_ONCE {
            let Some(looked) = waiting.next() else { break };
            let node = Arc::clone(node);
            tasks.spawn(async move { decide(&node, looked).await });
        }
        match tasks.join_next().await {
            None => return Ok(decided),
            Some(Ok(one)) => decided.push(one?),
            Some(Err(error)) => {
                let error = std::io::Error::other(error);
                return Err(Error::io("an adoption failed", error));
            }
        }
    }
}

async fn carry_out_all(node: &Arc<LocalNode>, decided: Vec<Decided>) -> (u32, u32, u32) {
    let mut waiting = decided.into_iter();
    let mut tasks = JoinSet::new();
    let (mut alive, mut gone, mut broken) = (0, 0, 0);
    loop {
        while tasks.len() < AT_ONCE {
            let Some(decided) = waiting.next() else { break };
            match decided.verdict {
                Verdict::Adopt(_) => alive += 1,
                Verdict::Finish(..) | Verdict::Remove(_) => gone += 1,
                Verdict::PutAside(..) | Verdict::Leave(_) => broken += 1,
            }
            let node = Arc::clone(node);
            tasks.spawn(async move { carry_out(&node, decided).await });
        }
        match tasks.join_next().await {
            None => return (alive, gone, broken),
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(%error, "an adoption failed"),
        }
    }
}

/// Takes it up if it should be there. An error is about this server, not about the sandbox.
async fn decide(node: &LocalNode, looked: Looked) -> Result<Decided> {
    let Looked { id, folder, loaded } = looked;
    let verdict = match loaded {
        Ok(Loaded::Nothing) => Verdict::Remove(None),
        Ok(Loaded::Damaged(damaged)) => judge_damaged(*damaged, &folder),
        Ok(Loaded::Whole(found)) => judge(node, found, &folder).await?,
        Err(Error::Damaged { what, message }) => {
            let fault = Fault {
                spec: None,
                reason: format!("{what} is damaged: {message}"),
                unsure: false,
            };
            Verdict::PutAside(fault, None)
        }
        Err(error) => {
            let (reading, reason) = (folder.clone(), in_full(&error));
            let spec = blocking(move || Ok(reading.spec())).await?;
            Verdict::Leave(Fault {
                spec,
                reason,
                unsure: false,
            })
        }
    };
    Ok(Decided {
        id,
        folder,
        verdict,
    })
}

fn judge_damaged(damaged: Damaged, folder: &Folder) -> Verdict {
    let Damaged {
        spec,
        running,
        reason,
    } = damaged;
    match spec {
        // There is nothing to keep, but somebody may ask.
        Some(spec) if spec.purpose == Purpose::User && matches!(folder.has_disk(), Ok(false)) => {
            let found = Found {
                spec,
                running,
                paused: None,
                warm: None,
                unready: false,
                ended: None,
            };
            let detail = format!("{reason}, and its disk was not there any more");
            ended(Box::new(found), EndReason::Lost, &detail)
        }
        Some(spec) if spec.purpose == Purpose::Build => Verdict::Remove(running),
        spec => {
            let fault = Fault {
                unsure: spec.as_ref().is_some_and(|s| s.purpose == Purpose::Warm),
                spec,
                reason,
            };
            Verdict::PutAside(fault, running)
        }
    }
}

/// Of one whose folder could be read.
async fn judge(node: &LocalNode, found: Box<Found>, folder: &Folder) -> Result<Verdict> {
    let (spec, running) = (&found.spec, &found.running);
    if let Some(end) = found.ended.clone() {
        return Ok(if spec.purpose == Purpose::User {
            Verdict::Finish(found, end)
        } else {
            Verdict::Remove(running.clone())
        });
    }
    if spec.purpose == Purpose::Build {
        return Ok(Verdict::Remove(running.clone()));
    }
    let put_aside = |reason: &str| {
        let fault = Fault {
            spec: Some(spec.clone()),
            reason: reason.to_owned(),
            unsure: true,
        };
        Verdict::PutAside(fault, running.clone())
    };
    if !outlives_its_server(&found) {
        // A handing over that was answered may be among what did not reach the disk.
        let verdict = if may_be_short_of_files(folder) {
            put_aside("the machine was restarted, and whether it was anybody's is not on its disk")
        } else if spec.purpose == Purpose::User {
            let detail = "the server stopped while it was being made";
            ended(found, EndReason::CreateFailed, detail)
        } else {
            Verdict::Remove(running.clone())
        };
        return Ok(verdict);
    }
    if running.is_none() && found.paused.is_none() && may_be_short_of_files(folder) {
        return Ok(put_aside(
            "the machine was restarted, and whether it was ready is not on its disk",
        ));
    }
    let mut taken = take_up(node, &found, folder).await;
    if let Err(error) = &taken {
        // It may have died under our hands: then a second look finds that.
        tracing::warn!(sandbox_id = %spec.id, %error, "the sandbox cannot be adopted; looking again");
        taken = take_up(node, &found, folder).await;
    }
    match taken {
        Ok(Ok(entry)) => Ok(Verdict::Adopt(Box::new(entry))),
        Ok(Err(gone)) => Ok(ended(found, gone.reason, &gone.detail)),
        Err(error) if is_short_of_resources(&error) => Err(error),
        Err(error) => Ok(Verdict::Leave(Fault {
            spec: Some(spec.clone()),
            reason: format!("it could not be taken up: {}", in_full(&error)),
            unsure: false,
        })),
    }
}

fn ended(found: Box<Found>, reason: EndReason, detail: &str) -> Verdict {
    let end = End {
        spec: Arc::new(found.spec.clone()),
        reason,
        detail: detail.to_owned(),
        at: UnixMillis::now(),
    };
    Verdict::Finish(found, end)
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

/// Only a user's. A build's has lost its builder. One that waited goes too, ready as it may be: the
/// server may have died after it was promised to a create, whose row then has its id for good. So
/// does one whose start command was under way: nobody would run it again, or wait for it.
fn outlives_its_server(found: &Found) -> bool {
    // With both, it was being handed over, and nobody was answered.
    found.spec.purpose == Purpose::User && found.warm.is_none() && !found.unready
}

/// The machine was started anew since it was made: files that were written, or removed, after the
/// last one that reached the disk may not be as they were. What has no disk has nothing to lose.
fn may_be_short_of_files(folder: &Folder) -> bool {
    let before = match (folder.made_at(), booted_at()) {
        (Some(made), Some(booted)) => made < booted,
        _ => true,
    };
    before && folder.has_disk().unwrap_or(true)
}

fn booted_at() -> Option<SystemTime> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    SystemTime::now().checked_sub(Duration::try_from_secs_f64(seconds).ok()?)
}

/// The sandbox as its folder says that it should be, if enough is left of it.
async fn take_up(node: &LocalNode, found: &Found, folder: &Folder) -> Result<Result<Entry, Gone>> {
    let (runtime, id) = (node.runtime(found.spec.tier)?, &found.spec.id);
    let adopted = match &found.running {
        Some(running) => runtime.adopt(&found.spec, running).await?,
        None => Adopted::Gone,
    };
    let entry = |state| {
        let mut entry = Entry::new(found.spec.clone(), state, folder.clone());
        entry.recall_notes();
        entry
    };
    let Some(mut paused) = found.paused else {
        if adopted == Adopted::Rebooted && folder.has_disk()? {
            return Ok(paused_after_reboot(found, entry(SandboxState::Paused)));
        }
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
        (PauseMode::Memory, Adopted::Alive) => {
            if let Err(error) = runtime.pause(id).await {
                // On a disk that takes nothing, standing still is what can be had.
                runtime.hold(id).await.map_err(|_| error)?;
            }
        }
        (PauseMode::Filesystem, Adopted::Alive) => runtime.stop(id).await?,
        (kept, Adopted::Gone | Adopted::Rebooted) => {
            if !folder.has_disk()? {
                let detail = "it was paused, and its disk was not there any more";
                return Ok(Err(Gone::new(EndReason::Lost, detail)));
            }
            if kept == PauseMode::Memory {
                tracing::warn!(sandbox_id = %id, "its memory is gone; its files are kept");
                paused.kept = PauseMode::Filesystem;
                // Another start that reads the old record finds the same.
                if let Err(error) = folder.paused(&paused) {
                    tracing::warn!(sandbox_id = %id, %error, "that its memory is gone is not on record");
                }
            }
        }
    }
    let mut entry = entry(SandboxState::Paused);
    entry.paused = Some(paused);
    entry.allocation = Allocation::while_paused(paused.kept);
    entry.note(
        LogLevel::Info,
        "adopted, paused, after a restart of the server",
    );
    Ok(Ok(entry))
}

/// It ran when the machine went down: its files are there, and it stays paused on them until somebody wakes
/// it or its time is over. Nothing of this is written: another start finds the same.
fn paused_after_reboot(found: &Found, mut entry: Entry) -> Result<Entry, Gone> {
    if ends_at_deadline(&found.spec) && found.spec.deadline <= UnixMillis::now() {
        let detail = "its time was over when the server started";
        return Err(Gone::new(EndReason::Expired, detail));
    }
    entry.paused = Some(Paused {
        kept: PauseMode::Filesystem,
        at: UnixMillis::now(),
    });
    entry.allocation = Allocation::while_paused(PauseMode::Filesystem);
    entry.note(
        LogLevel::Warn,
        "the machine was restarted: its memory is gone, its files are kept",
    );
    Ok(entry)
}

fn ends_at_deadline(spec: &SandboxSpec) -> bool {
    spec.lifecycle.on_timeout == OnTimeout::Kill
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

async fn carry_out(node: &Arc<LocalNode>, decided: Decided) {
    let Decided {
        id,
        folder,
        verdict,
    } = decided;
    match verdict {
        Verdict::Adopt(entry) => insert(node, *entry, &folder),
        Verdict::Finish(found, end) => finish_off(node, &found, &folder, &end).await,
        Verdict::Remove(running) => {
            let destroyed = destroy(node, &id, None, running.as_ref()).await;
            report(&id, destroyed.and_then(|()| folder.remove()));
        }
        Verdict::PutAside(fault, running) => {
            put_aside(node, &id, folder, fault, running.as_ref()).await;
        }
        Verdict::Leave(fault) => node.quarantine().leave(&id, &folder, fault),
    }
}

fn insert(node: &Arc<LocalNode>, entry: Entry, folder: &Folder) {
    let Some(paused) = entry.paused else {
        return node.insert_running(entry);
    };
    let spec = Arc::clone(&entry.spec);
    node.insert_paused(entry);
    // What was paused on purpose has no deadline.
    let on_purpose = folder.path().join("paused.json").exists();
    if paused.kept == PauseMode::Filesystem && !on_purpose && ends_at_deadline(&spec) {
        tokio::spawn(end_in_time(Arc::downgrade(node), spec));
    }
}

/// Ends one that nobody has woken since the machine was restarted.
async fn end_in_time(node: std::sync::Weak<LocalNode>, spec: Arc<SandboxSpec>) {
    loop {
        let left = spec.deadline.0.saturating_sub(UnixMillis::now().0);
        tokio::time::sleep(Duration::from_millis(left)).await;
        let Some(node) = node.upgrade() else { return };
        let Ok(transition_lock) = node.transition_lock(&spec.id) else {
            return;
        };
        // Somebody is waking it.
        let Ok(ours) = transition_lock.try_lock() else {
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        };
        let untouched =
            node.entries().lock().get(&spec.id).is_some_and(|entry| {
                entry.paused.is_some() && entry.spec.deadline == spec.deadline
            });
        drop(ours);
        if untouched {
            let detail = "nobody woke it after the machine was restarted";
            node.finish(&spec.id, EndReason::Expired, detail).await;
        }
        return;
    }
}

/// Where nothing can be lost, it goes; where something could not be done, it stays.
async fn put_aside(
    node: &Arc<LocalNode>,
    id: &SandboxId,
    folder: Folder,
    fault: Fault,
    running: Option<&Running>,
) {
    let put_away = async {
        let runtime = node.runtime(tier_of(fault.spec.as_ref(), running))?;
        runtime.put_away(id, running).await
    };
    let put_away = put_away.await;
    let (moving, of, place) = (Arc::clone(node), id.clone(), folder.clone());
    let moved = match put_away {
        Ok(()) => {
            let fault = fault.clone();
            blocking(move || {
                if place.has_disk()? {
                    moving.quarantine().put(&of, &place, &fault)
                } else {
                    let reason = &fault.reason;
                    tracing::error!(sandbox_id = %of, reason, "the sandbox cannot be used, and has no disk: removing it");
                    place.remove()
                }
            })
            .await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = moved {
        let reason = format!("{}; and: {}", fault.reason, in_full(&error));
        node.quarantine()
            .leave(id, &folder, Fault { reason, ..fault });
    }
}

/// Why it ended stays, until the control plane has it on record. Not of those that nobody but the
/// last server knew.
async fn finish_off(node: &LocalNode, found: &Found, folder: &Folder, end: &End) {
    let id = &found.spec.id;
    tracing::info!(sandbox_id = %id, reason = end.reason.as_str(), end.detail, "the sandbox is gone");
    // A full disk must not keep what nobody can use.
    if let Err(error) = folder.ended(end) {
        tracing::warn!(sandbox_id = %id, %error, "could not mark the end of a sandbox");
    }
    let destroyed = destroy(node, id, Some(&found.spec), found.running.as_ref()).await;
    report(
        id,
        destroyed.and_then(|()| folder.remove_into(node.ends(), end)),
    );
}

async fn destroy(
    node: &LocalNode,
    id: &SandboxId,
    spec: Option<&SandboxSpec>,
    running: Option<&Running>,
) -> Result<()> {
    node.runtime(tier_of(spec, running))?
        .destroy(id, running)
        .await
}

/// What runs says best of what it is.
fn tier_of(spec: Option<&SandboxSpec>, running: Option<&Running>) -> Tier {
    let of_running = running.map(|running| running.tier);
    of_running
        .or_else(|| spec.map(|spec| spec.tier))
        .unwrap_or_default()
}

fn report(id: &SandboxId, removed: Result<()>) {
    if let Err(error) = removed {
        tracing::error!(sandbox_id = %id, %error, "could not remove what is left; the next start tries again");
    }
}

/// For want of descriptors or memory nothing is known about anybody, and nobody is judged.
pub(crate) fn is_short_of_resources(error: &Error) -> bool {
    use rustix::io::Errno;
    causes(error).any(|cause| {
        let found = cause.downcast_ref::<std::io::Error>();
        matches!(
            found.and_then(Errno::from_io_error),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM)
        )
    })
}

/// With what the system said.
pub(crate) fn in_full(error: &Error) -> String {
    let mut words: Vec<String> = Vec::new();
    for cause in causes(error) {
        let word = cause.to_string();
        if words.last().is_none_or(|last| !last.contains(&word)) {
            words.push(word);
        }
    }
    words.join(": ")
}

/// The error and what it comes from. What an [`std::io::Error`] carries is not among its sources.
fn causes<'a>(error: &'a Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    let first: &'a (dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |cause| {
        let carried = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
            .map(|carried| -> &(dyn std::error::Error + 'static) { carried });
        carried.or_else(|| cause.source())
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_want_of_descriptors_is_seen_through_every_wrapping() {
        let code = rustix::io::Errno::MFILE.raw_os_error();
        let plain = || io::Error::from_raw_os_error(code);
        assert!(is_short_of_resources(&Error::io("x", plain())));
        assert!(is_short_of_resources(&Error::io(
            "x",
            io::Error::other(plain())
        )));
        let inner = Error::io("y", plain());
        assert!(is_short_of_resources(&Error::io(
            "x",
            io::Error::other(inner)
        )));
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(!is_short_of_resources(&Error::io("x", missing)));
    }

    #[test]
    fn a_reason_has_what_the_system_said() {
        let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        let said = in_full(&Error::io("could not read", source));
        assert_eq!(said, "could not read: Input/output error (os error 5)");
    }
}
