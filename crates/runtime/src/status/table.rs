//! The statuses side by side: a list of thousands reads one stretch of memory, instead of some
//! places for each of them that are in no cache.

use std::collections::HashMap;

use soulbox_types::{OnTimeout, SandboxId, TenantId, UnixMillis};

use super::{SandboxStatus, Visited, tokens::Tokens};

#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    /// The number of each one's row.
    numbers: HashMap<SandboxId, usize>,
    tenants: Tenants,
    tokens: Tokens,
}

#[derive(Debug)]
struct Row {
    status: SandboxStatus,
    tenant: u32,
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

impl Table {
    pub(super) fn get(&self, id: &SandboxId) -> Option<&SandboxStatus> {
        let row = self.rows.get(*self.numbers.get(id)?)?;
        Some(&row.status)
    }

    /// The one that this token belongs to.
    pub(super) fn of_token(&self, shown: &str) -> Option<&SandboxStatus> {
        let status = self.get(self.tokens.find(shown)?)?;
        let token = status.spec.access_token.as_ref()?;
        token.matches(shown).then_some(status)
    }

    /// In the place of one with the same id, if there is one.
    pub(super) fn set(&mut self, status: SandboxStatus) {
        let row = Row {
            tenant: self.tenants.number(&status.spec.tenant),
            created_at: status.spec.created_at,
            deadline: status.spec.deadline,
            on_timeout: status.spec.lifecycle.on_timeout,
            status,
        };
        let known = self.numbers.get(&row.status.spec.id);
        let known = known.and_then(|number| self.rows.get_mut(*number));
        let old = known.as_ref();
        let old = old.and_then(|row| row.status.spec.access_token.as_ref());
        let new = row.status.spec.access_token.as_ref();
        self.tokens.change(&row.status.spec.id, old, new);
        if let Some(place) = known {
            *place = row;
            return;
        }
        self.numbers
            .insert(row.status.spec.id.clone(), self.rows.len());
        self.rows.push(row);
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, id: &SandboxId) -> bool {
        let Some(number) = self.numbers.remove(id) else {
            return false;
        };
        let removed = self.rows.swap_remove(number).status.spec;
        self.tokens.change(id, removed.access_token.as_ref(), None);
        // The last one has taken its place.
        if let Some(moved) = self.rows.get(number) {
            self.numbers.insert(moved.status.spec.id.clone(), number);
        }
        true
    }

    pub(super) fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        let wanted = match tenant.map(|tenant| self.tenants.0.get(tenant)) {
            // A tenant that never had any.
            Some(None) => return,
            Some(Some(number)) => Some(*number),
            None => None,
        };
        // Mostly the newest first, which is how lists are asked for: what is older than a page is then
        // passed over without another look.
        for row in self.rows.iter().rev() {
            if wanted.is_none_or(|wanted| row.tenant == wanted) {
                each(Visited {
                    spec: &row.status.spec,
                    state: row.status.state,
                    paused: row.status.paused,
                    created_at: row.created_at,
                    deadline: row.deadline,
                    on_timeout: row.on_timeout,
                });
            }
        }
    }
}
