//! Webhooks: who is told of events, and the telling.
//!
//! Each webhook has its own bounded queue and worker, so a receiver that does not answer delays
//! nobody else. What waits in a queue when the server stops is not delivered; the events
//! themselves are in the store.

mod send;
mod target;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use parking_lot::RwLock;
use serde_json::{Value, json};
use soulbox_store::{EventRow, WebhookRow};
use soulbox_types::{Chain, Secret, TenantId, UnixMillis};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use self::{send::Sender, target::Target};
use crate::{
    Control, Error, Result, Tenant,
    committed::follow,
    journal::{EVENT_KINDS, written},
    vault::Vault,
};

const MAX_WEBHOOKS: usize = 20;
const MAX_NAME: usize = 256;
const MAX_SECRET: usize = 1024;
const QUEUE: usize = 1000;
/// The first one and E2B's three retries.
const ATTEMPTS: u32 = 4;
pub(crate) const TYPE_PREFIX: &str = "sandbox.lifecycle.";

/// How events are delivered.
#[derive(Debug, Clone, Copy)]
pub struct WebhookConfig {
    /// Whether receivers may be on private or local addresses. Tenants choose the addresses, so
    /// this opens the operator's network to them.
    pub allow_private: bool,
    /// Before the first retry; each further one waits twice as long.
    pub retry_after: Duration,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            allow_private: false,
            retry_after: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookInfo {
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    pub url: String,
    /// E2B's event types.
    pub events: Vec<String>,
    pub enabled: bool,
    pub created_at: UnixMillis,
}

/// What to set. A new webhook needs all but `enabled`.
#[derive(Debug, Clone, Default)]
pub struct WebhookChanges {
    pub name: Option<String>,
    pub url: Option<String>,
    pub events: Option<Vec<String>>,
    pub enabled: Option<bool>,
    pub signature_secret: Option<Secret>,
}

pub(crate) struct Hooks {
    sender: Sender,
    config: WebhookConfig,
    stop: CancellationToken,
    by_id: RwLock<HashMap<String, Arc<Hook>>>,
    /// One change at a time.
    changes: tokio::sync::Mutex<()>,
}

struct Hook {
    row: WebhookRow,
    queue: mpsc::Sender<Arc<EventRow>>,
}

/// One webhook's worker's view of it.
struct Receiver {
    id: String,
    target: Target,
    secret: Secret,
}

impl Control {
    /// Oldest first.
    pub fn webhooks(&self, tenant: &Tenant) -> Vec<WebhookInfo> {
        let hooks = self.hooks.by_id.read();
        let mut mine: Vec<WebhookInfo> = hooks
            .values()
            .filter(|hook| hook.row.tenant == tenant.id)
            .map(|hook| (&hook.row).into())
            .collect();
        mine.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        mine
    }

    pub fn webhook(&self, tenant: &Tenant, id: &str) -> Result<WebhookInfo> {
        Ok((&self.hooks.find(tenant, id)?.row).into())
    }

    pub async fn create_webhook(
        &self,
        tenant: &Tenant,
        request: WebhookChanges,
    ) -> Result<WebhookInfo> {
        let _held = self.hooks.changes.lock().await;
        if self.webhooks(tenant).len() >= MAX_WEBHOOKS {
            return Err(Error::Invalid(format!(
                "a team has at most {MAX_WEBHOOKS} webhooks"
            )));
        }
        let missing = |what| Error::Invalid(format!("{what} is required"));
        let secret = request
            .signature_secret
            .ok_or_else(|| missing("signatureSecret"))?;
        let id = Uuid::new_v4().to_string();
        let row = WebhookRow {
            tenant: tenant.id.clone(),
            name: request.name.ok_or_else(|| missing("name"))?,
            url: request.url.ok_or_else(|| missing("url"))?,
            events: request.events.ok_or_else(|| missing("events"))?,
            enabled: request.enabled.unwrap_or(true),
            sealed: String::new(),
            created_at: UnixMillis::now(),
            id,
        };
        self.put_webhook(row, secret).await
    }

    /// What is not given stays.
    pub async fn update_webhook(
        &self,
        tenant: &Tenant,
        id: &str,
        request: WebhookChanges,
    ) -> Result<WebhookInfo> {
        let _held = self.hooks.changes.lock().await;
        let mut row = self.hooks.find(tenant, id)?.row.clone();
        let secret = match request.signature_secret {
            Some(secret) => secret,
            None => self.vault.open(&row.tenant, &row.id, &row.sealed)?,
        };
        row.name = request.name.unwrap_or(row.name);
        row.url = request.url.unwrap_or(row.url);
        row.events = request.events.unwrap_or(row.events);
        row.enabled = request.enabled.unwrap_or(row.enabled);
        self.put_webhook(row, secret).await
    }

    pub async fn delete_webhook(&self, tenant: &Tenant, id: &str) -> Result<()> {
        let _held = self.hooks.changes.lock().await;
        let hook = self.hooks.find(tenant, id)?;
        let deleted = self.store.delete_webhook(&hook.row.id).await;
        follow(deleted, || {
            self.hooks.by_id.write().remove(&hook.row.id);
        })
    }

    async fn put_webhook(&self, mut row: WebhookRow, secret: Secret) -> Result<WebhookInfo> {
        check(&row, &secret)?;
        let target = Target::parse(&row.url, self.hooks.config.allow_private)?;
        row.sealed = self.vault.seal(&row.tenant, &row.id, &secret)?;
        let written = self.store.put_webhook(&row).await;
        let info = (&row).into();
        follow(written, || self.hooks.add(row, target, secret))?;
        Ok(info)
    }
}

impl Hooks {
    pub(crate) fn load(
        rows: Vec<WebhookRow>,
        vault: &Vault,
        config: WebhookConfig,
        stop: CancellationToken,
    ) -> Self {
        let hooks = Self {
            sender: Sender::new(config.allow_private),
            config,
            stop,
            by_id: RwLock::default(),
            changes: tokio::sync::Mutex::default(),
        };
        for row in rows {
            let opened = vault.open(&row.tenant, &row.id, &row.sealed);
            let target = Target::parse(&row.url, config.allow_private);
            match (opened, target) {
                (Ok(secret), Ok(target)) => hooks.add(row, target, secret),
                (Err(error), _) | (_, Err(error)) => {
                    tracing::error!(webhook = row.id, error = %Chain(&error), "a webhook cannot be used");
                }
            }
        }
        hooks
    }

    /// Never waits.
    pub(crate) fn emit(&self, event: EventRow) {
        let kind = format!("{TYPE_PREFIX}{}", event.kind);
        let event = Arc::new(event);
        for hook in self.by_id.read().values() {
            let wanted = hook.row.enabled
                && hook.row.tenant == event.tenant
                && hook.row.events.contains(&kind);
            if wanted && hook.queue.try_send(Arc::clone(&event)).is_err() {
                tracing::warn!(
                    webhook = hook.row.id,
                    "an event is not delivered: too many wait"
                );
            }
        }
    }

    /// Also in place of an older one with its id, whose worker ends after what it has.
    fn add(&self, row: WebhookRow, target: Target, secret: Secret) {
        let (queue, events) = mpsc::channel(QUEUE);
        let receiver = Receiver {
            id: row.id.clone(),
            target,
            secret,
        };
        let (sender, stop) = (self.sender.clone(), self.stop.clone());
        let retry_after = self.config.retry_after;
        tokio::spawn(async move {
            stop.run_until_cancelled(work(sender, receiver, events, retry_after))
                .await;
        });
        let id = row.id.clone();
        self.by_id.write().insert(id, Arc::new(Hook { row, queue }));
    }

    fn find(&self, tenant: &Tenant, id: &str) -> Result<Arc<Hook>> {
        let hooks = self.by_id.read();
        let hook = hooks.get(id).filter(|hook| hook.row.tenant == tenant.id);
        hook.cloned()
            .ok_or_else(|| Error::WebhookNotFound(id.to_owned()))
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.by_id.read().len();
        f.debug_struct("Hooks")
            .field("count", &count)
            .finish_non_exhaustive()
    }
}

impl From<&WebhookRow> for WebhookInfo {
    fn from(row: &WebhookRow) -> Self {
        Self {
            id: row.id.clone(),
            tenant: row.tenant.clone(),
            name: row.name.clone(),
            url: row.url.clone(),
            events: row.events.clone(),
            enabled: row.enabled,
            created_at: row.created_at,
        }
    }
}

async fn work(
    sender: Sender,
    receiver: Receiver,
    mut events: mpsc::Receiver<Arc<EventRow>>,
    retry_after: Duration,
) {
    while let Some(event) = events.recv().await {
        let body = payload(&event).to_string();
        let mut wait = retry_after;
        for attempt in 1..=ATTEMPTS {
            let sent = sender
                .send(&receiver.target, &receiver.id, &receiver.secret, &body)
                .await;
            let Err(error) = sent else { break };
            if attempt == ATTEMPTS {
                tracing::warn!(webhook = receiver.id, error = %Chain(&error), "an event was not delivered");
                break;
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }
}

/// E2B's second version of an event.
fn payload(event: &EventRow) -> Value {
    json!({
        "version": "v2",
        "id": event.id,
        "type": format!("{TYPE_PREFIX}{}", event.kind),
        "timestamp": written(event.at),
        "event_category": "lifecycle",
        "event_label": event.kind,
        "event_data": event.data,
        "sandbox_id": event.sandbox.as_str(),
        "sandbox_execution_id": event.execution,
        "sandbox_template_id": event.template,
        "sandbox_build_id": event.build,
        "sandbox_team_id": event.tenant.as_str(),
    })
}

fn check(row: &WebhookRow, secret: &Secret) -> Result<()> {
    let invalid = |message: String| Err(Error::Invalid(message));
    if row.name.is_empty() || row.name.chars().count() > MAX_NAME || row.name.contains('\0') {
        return invalid(format!("name must have 1 to {MAX_NAME} characters"));
    }
    if !(1..=MAX_SECRET).contains(&secret.expose().len()) {
        return invalid(format!("signatureSecret must have 1 to {MAX_SECRET} bytes"));
    }
    let known = |event: &&String| {
        let kind = event.strip_prefix(TYPE_PREFIX);
        kind.is_some_and(|kind| EVENT_KINDS.contains(&kind))
    };
    if row.events.is_empty() {
        return invalid("events must name at least one event type".to_owned());
    }
    match row.events.iter().find(|event| !known(event)) {
        Some(unknown) => invalid(format!(
            "events: {unknown:?} is no event type; there are {TYPE_PREFIX}{{{}}}",
            EVENT_KINDS.join(",")
        )),
        None => Ok(()),
    }
}
