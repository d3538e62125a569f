//! Copies of a running sandbox: one capture, and sandboxes that stand on it.
//!
//! The image is doomed from the start, so it goes with the last sandbox that stands on it.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use soulbox_types::{Lifecycle, SandboxId, SandboxSpec, Secret, TemplateId, UnixMillis};
use tracing::Instrument;

use crate::{Access, Control, Error, Result, Tenant, create::Plan, request::lifetime};

const MOST_COPIES: i64 = 100;
/// More at once would only make each of them slower.
const AT_ONCE: usize = 8;

impl Control {
    /// `count` sandboxes with the files of this one, which goes on. Each comes to be, or fails, on
    /// its own.
    pub async fn fork(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        count: i64,
        seconds: i64,
    ) -> Result<Vec<Result<Access>>> {
        let most = MOST_COPIES.min(i64::from(self.config.max_sandboxes_per_tenant) - 1);
        if !(1..=most).contains(&count) {
            let message = format!("count must be between 1 and {most}");
            return Err(Error::Invalid(message));
        }
        let life = lifetime(seconds, self.config.max_timeout)?;
        let (control, tenant, id) = (Arc::clone(self), tenant.clone(), id.clone());
        let work = async move {
            let source = match control.running(&tenant, &id).await {
                Err(Error::SandboxPaused { id }) => return Err(Error::ForkOfPaused { id }),
                found => found?.spec,
            };
            let _claim = control.claim_mounted(&source.volumes)?;
            let (taken, _hold) = match control.capture(&tenant, &id).await {
                Err(Error::SandboxPaused { id }) => return Err(Error::ForkOfPaused { id }),
                captured => captured?,
            };
            let copies = stream::iter(0..count)
                .map(|_| control.copy(&source, &taken.id, life))
                .buffered(AT_ONCE)
                .collect::<Vec<_>>()
                .await;
            let made = copies.iter().filter(|copy| copy.is_ok()).count();
            tracing::info!(made, asked = count, "sandbox forked");
            let data = serde_json::Map::from_iter([("copies".to_owned(), made.into())]);
            control.note_event(&id, "forked", data);
            Ok(copies)
        };
        let copies = self.finish(work.in_current_span()).await;
        self.sweep_later();
        copies
    }

    async fn copy(
        &self,
        source: &SandboxSpec,
        image: &TemplateId,
        life: Duration,
    ) -> Result<Access> {
        let id = SandboxId::random();
        let now = UnixMillis::now();
        let secured = source.access_token.is_some();
        let spec = SandboxSpec {
            access_token: secured.then(|| self.tokens.access_token(&id)),
            traffic_token: (!source.network.is_public()).then(|| self.tokens.traffic_token(&id)),
            node_token: Secret::random(),
            snapshot: Some(image.clone()),
            lifecycle: Lifecycle {
                timeout_seconds: life.as_secs(),
                ..source.lifecycle.clone()
            },
            created_at: now,
            deadline: now.plus(life),
            id,
            ..source.clone()
        };
        self.carry_out(Plan::new(spec, life)).await
    }
}
