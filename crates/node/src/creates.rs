//! Creates that are under way: which may still be ended by their id, and whether somebody waits.
//!
//! One that takes over a sandbox of the pool may have to make another one under the same id, when
//! that one cannot be used. In between there is no entry of that id, so an end that is asked for
//! then is remembered here.

use std::collections::HashMap;

use parking_lot::Mutex;
use soulbox_types::SandboxId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Creates {
    /// Locked after the node's entries where both are needed.
    under_way: Mutex<HashMap<SandboxId, UnderWay>>,
    waiting: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// Calls with the same id.
    calls: usize,
    killed: CancellationToken,
}

impl Creates {
    pub(crate) fn begin(&self, id: &SandboxId) -> Create<'_> {
        let mut under_way = self.under_way.lock();
        let create = under_way.entry(id.clone()).or_default();
        create.calls += 1;
        Create {
            creates: self,
            id: id.clone(),
            killed: create.killed.clone(),
        }
    }

    /// No sandbox of this id is made any more by the creates that are under way.
    pub(crate) fn kill(&self, id: &SandboxId) {
        if let Some(create) = self.under_way.lock().get(id) {
            create.killed.cancel();
        }
    }

    pub(crate) fn is_killed(&self, id: &SandboxId) -> bool {
        let under_way = self.under_way.lock();
        under_way.get(id).is_some_and(|c| c.killed.is_cancelled())
    }

    /// Somebody waits for processes to be started and to be ready, while the result lives.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        Waiting(self)
    }

    /// Returns when nobody waits.
    pub(crate) async fn nobody_waits(&self) {
        let mut waiting = self.waiting.subscribe();
        // The sender is ours.
        let _always = waiting.wait_for(|waiting| *waiting == 0).await.is_ok();
    }
}

/// A create that is under way.
#[derive(Debug)]
pub(crate) struct Create<'a> {
    creates: &'a Creates,
    id: SandboxId,
    /// Somebody has ended what it is to make.
    pub(crate) killed: CancellationToken,
}

impl Drop for Create<'_> {
    fn drop(&mut self) {
        let mut under_way = self.creates.under_way.lock();
        if let Some(create) = under_way.get_mut(&self.id) {
            create.calls -= 1;
            if create.calls == 0 {
                under_way.remove(&self.id);
            }
        }
    }
}

#[derive(Debug)]
#[must_use = "somebody waits while it lives"]
pub(crate) struct Waiting<'a>(&'a Creates);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_kill_reaches_every_create_of_its_id_and_none_that_comes_later() {
        let (creates, id) = (Creates::default(), SandboxId::random());
        creates.kill(&id);
        let first = creates.begin(&id);
        let second = creates.begin(&id);
        assert!(!creates.is_killed(&id), "it was before them");
        creates.kill(&id);
        drop(first);
        assert!(creates.is_killed(&id) && second.killed.is_cancelled());
        drop(second);
        assert!(!creates.is_killed(&id));
        assert!(creates.under_way.lock().is_empty());
    }

    #[test]
    fn whoever_gives_way_goes_on_when_the_last_one_is_served() {
        let creates = Creates::default();
        let (first, second) = (creates.wait(), creates.wait());
        drop(first);
        assert!(creates.nobody_waits().now_or_never().is_none());
        drop(second);
        assert!(creates.nobody_waits().now_or_never().is_some());
    }
}
