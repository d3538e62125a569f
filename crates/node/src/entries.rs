//! The sandboxes of this node in memory.
//!
//! What a list asks of each of them is kept side by side as well: a list of thousands then reads one
//! stretch of memory, instead of some places for each of them that are in no cache.

use std::{
    collections::HashMap,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use soulbox_runtime::{Paused, Visited};
use soulbox_types::{OnTimeout, SandboxId, SandboxSpec, SandboxState, TenantId, UnixMillis};

use crate::entry::Entry;

#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// With the number of its row.
    all: HashMap<SandboxId, (usize, Entry)>,
    rows: Vec<Row>,
    tenants: Tenants,
}

#[derive(Debug)]
struct Row {
    /// Absent while the entry is being changed, so that a change of it copies nothing.
    spec: Option<Arc<SandboxSpec>>,
    tenant: u32,
    /// Whether anybody outside the node is told of it.
    is_shown: bool,
    state: SandboxState,
    paused: Option<Paused>,
    created_at: UnixMillis,
    deadline: UnixMillis,
    on_timeout: OnTimeout,
}

/// Numbers for tenants. Those of tenants that are gone are kept: there are few.
#[derive(Debug, Default)]
struct Tenants(HashMap<TenantId, u32>);

impl Tenants {
    fn number(&mut self, tenant: &TenantId) -> u32 {
        if let Some(number) = self.0.get(tenant) {
            return *number;
        }
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.insert(tenant.clone(), next);
        next
    }
}

impl Row {
    fn of(entry: &Entry, tenants: &mut Tenants) -> Self {
        let spec = &entry.spec;
        Self {
            spec: Some(Arc::clone(spec)),
            tenant: tenants.number(&spec.tenant),
            is_shown: entry.is_shown(),
            state: entry.state(),
            paused: entry
                .paused
                .filter(|_| entry.state() == SandboxState::Paused),
            created_at: spec.created_at,
            deadline: spec.deadline,
            on_timeout: spec.lifecycle.on_timeout,
        }
    }
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn contains(&self, id: &SandboxId) -> bool {
        self.all.contains_key(id)
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<&Entry> {
        self.all.get(id).map(|(_, entry)| entry)
    }

    pub(crate) fn get_mut(&mut self, id: &SandboxId) -> Option<EntryMut<'_>> {
        let (row, entry) = self.all.get_mut(id)?;
        let row = self.rows.get_mut(*row)?;
        row.spec = None;
        Some(EntryMut {
            entry,
            row,
            tenants: &mut self.tenants,
        })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.all.values().map(|(_, entry)| entry)
    }

    /// In the place of one with the same id, if there is one.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.remove(&entry.id().clone());
        self.rows.push(Row::of(&entry, &mut self.tenants));
        self.all
            .insert(entry.id().clone(), (self.rows.len() - 1, entry));
    }

    pub(crate) fn remove(&mut self, id: &SandboxId) -> Option<Entry> {
        let (row, entry) = self.all.remove(id)?;
        self.rows.swap_remove(row);
        // The last one has taken its place.
        if let Some(moved) = self.rows.get(row).and_then(|row| row.spec.as_ref())
            && let Some((number, _)) = self.all.get_mut(&moved.id)
        {
            *number = row;
        }
        Some(entry)
    }

    /// Those that anybody outside the node is told of: of one tenant, or all.
    pub(crate) fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        let wanted = match tenant.map(|tenant| self.tenants.0.get(tenant)) {
            // A tenant that never had any.
            Some(None) => return,
            Some(Some(number)) => Some(*number),
            None => None,
        };
        // Mostly the newest first, which is how lists are asked for: what is older than a page is then
        // passed over without another look.
        for row in self.rows.iter().rev() {
            if row.is_shown
                && wanted.is_none_or(|wanted| row.tenant == wanted)
                && let Some(spec) = &row.spec
            {
                each(Visited {
                    spec,
                    state: row.state,
                    paused: row.paused,
                    created_at: row.created_at,
                    deadline: row.deadline,
                    on_timeout: row.on_timeout,
                });
            }
        }
    }
}

/// An entry that is being changed.
#[derive(Debug)]
pub(crate) struct EntryMut<'a> {
    entry: &'a mut Entry,
    row: &'a mut Row,
    tenants: &'a mut Tenants,
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
        *self.row = Row::of(self.entry, self.tenants);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use soulbox_types::{Purpose, Secret};

    use super::*;
    use crate::folder::Folder;

    const OURS: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
    const THEIRS: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

    fn entry(id: &str, tenant: &str) -> Entry {
        let spec = SandboxSpec {
            id: id.parse().unwrap(),
            tenant: tenant.parse().unwrap(),
            tier: soulbox_types::Tier::default(),
            template: "base".parse().unwrap(),
            build: None,
            purpose: Purpose::User,
            alias: None,
            limits: soulbox_types::Limits::default(),
            env: std::collections::BTreeMap::new(),
            metadata: std::collections::BTreeMap::new(),
            network: soulbox_types::NetworkPolicy::default(),
            lifecycle: soulbox_types::Lifecycle::default(),
            snapshot: None,
            volumes: Vec::new(),
            access_token: None,
            traffic_token: None,
            node_token: Secret::new("node"),
            created_at: UnixMillis(1),
            deadline: UnixMillis(2),
        };
        let folder = Folder::new(Path::new("/nowhere"), &spec.id);
        Entry::new(spec, SandboxState::Running, folder)
    }

    fn seen(entries: &Entries, tenant: &str) -> Vec<(String, SandboxState, UnixMillis)> {
        let mut seen = Vec::new();
        entries.visit(Some(&tenant.parse().unwrap()), &mut |visited| {
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
    fn rows_follow_their_entries_whoever_goes() {
        let mut entries = Entries::default();
        let ids: Vec<String> = (0..20).map(|number| format!("i{number:02}")).collect();
        for id in &ids {
            entries.insert(entry(id, OURS));
        }
        // The first, the last, one in the middle, and one that is put in the place of itself.
        for id in ["i00", "i19", "i07"] {
            assert!(entries.remove(&id.parse().unwrap()).is_some());
        }
        entries.insert(entry("i05", THEIRS));
        for id in ["i18", "i01"] {
            let mut changed = entries.get_mut(&id.parse().unwrap()).unwrap();
            Arc::make_mut(&mut changed.spec).deadline = UnixMillis(7);
        }
        let seen = seen(&entries, OURS);
        assert_eq!((seen.len(), entries.len()), (16, 17));
        for (id, _, deadline) in &seen {
            let expected = if id == "i18" || id == "i01" { 7 } else { 2 };
            assert_eq!(deadline.0, expected, "{id}");
        }
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
