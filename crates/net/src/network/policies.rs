//! Who has which policy, and the firewall's sets that say the same.
//!
//! The link's group is the switch, and the sets are filled before it is turned to them and emptied
//! after it is turned away: at no moment does a packet meet half a policy. A sandbox whose group
//! points to the sets while they do not know it (a new server has not adopted it yet) waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::host::Host;
use crate::link::Access;
use crate::policy::{Blocks, EgressPolicy, Plan};
use crate::{Error, firewall};

/// What the sets hold, by slot. Whoever changes the table holds the lock.
pub(super) type Policies = BTreeMap<u32, Blocks>;

impl Host {
    pub(super) async fn set_policy(
        self: &Arc<Self>,
        index: u32,
        policy: &EgressPolicy,
    ) -> Result<(), Error> {
        let plan = policy.plan()?;
        let host = Arc::clone(self);
        // To its end even when the caller goes: half a change would be nobody's to finish.
        let task = tokio::spawn(async move { host.apply_plan(index, plan).await });
        task.await
            .map_err(|error| Error::kernel("changing a policy", std::io::Error::other(error)))?
    }

    async fn apply_plan(self: &Arc<Self>, index: u32, plan: Plan) -> Result<(), Error> {
        let mut policies = self.policies.lock().await;
        match plan {
            Plan::Plain(access) => {
                self.set_access(index, access).await?;
                let sandbox = self.config.slot_address(index);
                if access == Access::Closed {
                    self.domain_rules.cut(sandbox);
                }
                // They mean nothing any more, and go with the slot at the latest.
                if let Err(error) = self.replace(&mut policies, index, None).await {
                    tracing::warn!(%error, "a former policy's elements stay in the firewall");
                }
                self.domain_rules.set(sandbox, None);
                Ok(())
            }
            Plan::Ruled(blocks) => {
                let sandbox = self.config.slot_address(index);
                let (old, new) = (self.domain_rules.get(sandbox), blocks.names.clone());
                let has_names = new.is_some();
                // Names are known before the first connection is sent to them, and until after the last.
                if has_names {
                    self.domain_rules.set(sandbox, new);
                }
                let replaced = self.replace(&mut policies, index, Some(blocks)).await;
                if replaced.is_err() {
                    self.domain_rules.set(sandbox, old);
                } else if !has_names {
                    self.domain_rules.set(sandbox, None);
                }
                replaced?;
                self.set_access(index, Access::Ruled).await
            }
        }
    }

    /// Removes what the sets hold of a slot whose link is gone.
    pub(super) async fn forget_policy(&self, index: u32) -> Result<(), Error> {
        let mut policies = self.policies.lock().await;
        self.replace(&mut policies, index, None).await?;
        self.domain_rules.forget(self.config.slot_address(index));
        Ok(())
    }

    async fn replace(
        &self,
        policies: &mut Policies,
        index: u32,
        new: Option<Blocks>,
    ) -> Result<(), Error> {
        let (table, address) = (self.names.table(), self.config.slot_address(index));
        let script = firewall::change(&table, address, policies.get(&index), new.as_ref());
        if script.is_empty() {
            return Ok(());
        }
        let old = match new {
            Some(blocks) => policies.insert(index, blocks),
            None => policies.remove(&index),
        };
        let Err(error) = firewall::run_script(&script).await else {
            return Ok(());
        };
        tracing::warn!(%error, "the firewall's sets are not as expected; writing all of it again");
        let written = firewall::apply(&self.rules(policies)).await;
        if written.is_err() {
            match old {
                Some(blocks) => policies.insert(index, blocks),
                None => policies.remove(&index),
            };
        }
        written
    }
}
