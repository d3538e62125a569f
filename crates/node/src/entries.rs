//! The sandboxes of this node in memory. What others see of them is in [`StatusCache`], which
//! follows every change here.

use std::{
    collections::HashMap,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use soulbox_runtime::StatusCache;
use soulbox_types::SandboxId;

use crate::entry::Entry;

#[derive(Debug, Default)]
pub(crate) struct Entries {
    all: HashMap<SandboxId, Entry>,
    statuses: Arc<StatusCache>,
}

impl Entries {
    pub(crate) fn new(statuses: Arc<StatusCache>) -> Self {
        Self {
            all: HashMap::new(),
            statuses,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn contains(&self, id: &SandboxId) -> bool {
        self.all.contains_key(id)
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<&Entry> {
        self.all.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &SandboxId) -> Option<EntryMut<'_>> {
        Some(EntryMut {
            entry: self.all.get_mut(id)?,
            statuses: &self.statuses,
        })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.all.values()
    }

    /// In the place of one with the same id, if there is one.
    pub(crate) fn insert(&mut self, entry: Entry) {
        show(&entry, &self.statuses);
        self.all.insert(entry.id().clone(), entry);
    }

    pub(crate) fn remove(&mut self, id: &SandboxId) -> Option<Entry> {
        self.statuses.remove(id);
        self.all.remove(id)
    }
}

fn show(entry: &Entry, statuses: &StatusCache) {
    if entry.is_shown() {
        statuses.set(entry.status());
    } else {
        statuses.remove(entry.id());
    }
}

/// An entry that is being changed.
#[derive(Debug)]
pub(crate) struct EntryMut<'a> {
    entry: &'a mut Entry,
    statuses: &'a StatusCache,
}

impl Deref for EntryMut<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl DerefMut for EntryMut<'_> {
    fn deref_mut(&mut self) -> &mut Entry {
        self.entry
    }
}

impl Drop for EntryMut<'_> {
    fn drop(&mut self) {
        show(self.entry, self.statuses);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use soulbox_types::{Purpose, SandboxSpec, SandboxState, UnixMillis};

    use super::*;
    use crate::folder::Folder;

    const OURS: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
    const THEIRS: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

    fn entry(id: &str, tenant: &str) -> Entry {
        let spec = SandboxSpec {
            id: id.parse().unwrap(),
            tenant: tenant.parse().unwrap(),
            created_at: UnixMillis(1),
            deadline: UnixMillis(2),
            ..soulbox_testkit::spec()
        };
        let folder = Folder::new(Path::new("/nowhere"), &spec.id);
        Entry::new(spec, SandboxState::Running, folder)
    }

    fn seen(entries: &Entries, tenant: &str) -> Vec<(String, SandboxState, UnixMillis)> {
        let mut seen = Vec::new();
        let statuses = &entries.statuses;
        statuses.visit(Some(&tenant.parse().unwrap()), &mut |visited| {
            let id = visited.spec.id.to_string();
            seen.push((id, visited.state, visited.deadline));
        });
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        seen
    }

    #[test]
    fn a_list_shows_each_tenants_own_as_they_are() {
        let mut entries = Entries::default();
        for id in ["i1", "i2", "i3"] {
            entries.insert(entry(id, OURS));
        }
        entries.insert(entry("i4", THEIRS));
        {
            let mut changed = entries.get_mut(&"i2".parse().unwrap()).unwrap();
            Arc::make_mut(&mut changed.spec).deadline = UnixMillis(9);
            changed.transition(SandboxState::Paused).unwrap();
        }
        let expected = |id: &str, state, deadline| (id.to_owned(), state, UnixMillis(deadline));
        assert_eq!(
            seen(&entries, OURS),
            [
                expected("i1", SandboxState::Running, 2),
                expected("i2", SandboxState::Paused, 9),
                expected("i3", SandboxState::Running, 2),
            ]
        );
        assert_eq!(seen(&entries, THEIRS).len(), 1);
        assert!(seen(&entries, "01890a5d-ac96-774b-bcce-b302099a8059").is_empty());
    }

    #[test]
    fn what_others_do_not_see_is_no_change_for_them() {
        let mut entries = Entries::default();
        entries.insert(entry("i1", OURS));
        let (snapshot, mut changes) = entries.statuses.subscribe();
        assert_eq!(snapshot.statuses.len(), 1);
        let id = "i1".parse().unwrap();
        let level = soulbox_runtime::LogLevel::Info;
        entries.get_mut(&id).unwrap().note(level, "something");
        assert!(changes.try_recv().is_err());
        entries.remove(&id);
        assert!(changes.try_recv().unwrap().status.is_none());
    }

    #[test]
    fn what_nobody_is_told_of_is_not_shown() {
        let mut entries = Entries::default();
        entries.insert(entry("i1", OURS));
        let id = "i1".parse().unwrap();
        Arc::make_mut(&mut entries.get_mut(&id).unwrap().spec).purpose = Purpose::Warm;
        assert!(seen(&entries, OURS).is_empty());
        Arc::make_mut(&mut entries.get_mut(&id).unwrap().spec).purpose = Purpose::User;
        assert_eq!(seen(&entries, OURS).len(), 1);
        let mut ending = entries.get_mut(&id).unwrap();
        ending.transition(SandboxState::Destroying).unwrap();
        drop(ending);
        assert!(seen(&entries, OURS).is_empty());
    }
}
