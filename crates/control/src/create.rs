//! Making a sandbox: one row, and the node. It is finished even when its client goes away.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Error as NodeError, PoolKey, Reservation, ReserveRequest, SandboxStatus};
use soulbox_store::{EndRow, IdempotencyRecord, SandboxRow, Started};
use soulbox_types::{
    EndReason, Purpose, SandboxId, SandboxSpec, Secret, TemplateId, TenantId, UnixMillis,
};
use tracing::Instrument;

use crate::{
    Control, CreateRequest, Error, Result, Tenant,
    building::BuildHold,
    idempotency::{StoredAnswer, forget_before},
    request::lifetime,
    snapshots::ImageHold,
    template::Origin,
};

/// The node has its own, tighter limits per step; this one is for a node that does not answer.
const CREATE_LIMIT: Duration = Duration::from_secs(55);
/// For the end of what could not be made; the client waits for the reason meanwhile.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(3);

/// What a client needs to use a sandbox: the answer to create and connect.
#[derive(Debug, Clone)]
pub struct Access {
    pub id: SandboxId,
    pub template: TemplateId,
    pub alias: Option<String>,
    pub access_token: Option<Secret>,
    /// Only of a sandbox that is not public.
    pub traffic_token: Option<Secret>,
}

impl From<&SandboxStatus> for Access {
    fn from(status: &SandboxStatus) -> Self {
        Self {
            id: status.spec.id.clone(),
            template: status.spec.template.clone(),
            alias: status.spec.alias.clone(),
            access_token: status.spec.access_token.clone(),
            traffic_token: status.spec.traffic_token.clone(),
        }
    }
}

/// A checked request.
pub(crate) struct Plan {
    spec: SandboxSpec,
    lifetime: Duration,
    record: Option<IdempotencyRecord>,
    /// Until the node knows that the sandbox stands on them.
    _holds: (Option<ImageHold>, Option<BuildHold>),
}

impl Plan {
    /// Without an idempotency key.
    pub(crate) fn new(spec: SandboxSpec, lifetime: Duration) -> Self {
        Self {
            spec,
            lifetime,
            record: None,
            _holds: (None, None),
        }
    }
}

impl Control {
    /// Returns when envd inside answers. If the caller goes away meanwhile, the sandbox still comes
    /// to be, lives for its timeout, and a repeated request with the same idempotency key finds it.
    pub async fn create_sandbox(
        self: &Arc<Self>,
        tenant: &Tenant,
        request: CreateRequest,
    ) -> Result<Access> {
        let (volumes, claim) = self.resolve_mounts(tenant, &request.volume_mounts).await?;
        request.check()?;
        let origin = self.origin_when_built(tenant, &request).await?;
        let mut plan = self.plan(tenant, request, origin)?;
        plan.spec.volumes = volumes;
        let control = Arc::clone(self);
        let work = async move {
            // Until the node knows that the sandbox has them.
            let _claim = claim;
            control.carry_out(plan).await
        };
        self.finish(work.in_current_span()).await
    }

    /// A template of the server's own is built when it is first wanted.
    async fn origin_when_built(
        self: &Arc<Self>,
        tenant: &Tenant,
        request: &CreateRequest,
    ) -> Result<Origin> {
        let text = &request.template;
        match self.origin(tenant, text) {
            Err(Error::TemplateNotBuilt(name)) => {
                let operator = self.scheduler()?.config.patience;
                self.await_builtin(&name, request.wait.within(operator))
                    .await?;
                self.origin(tenant, text)
            }
            Ok(origin) => {
                self.renew_builtin(&origin.template);
                Ok(origin)
            }
            Err(error) => Err(error),
        }
    }

    fn plan(&self, tenant: &Tenant, request: CreateRequest, origin: Origin) -> Result<Plan> {
        let lifetime = lifetime(request.timeout, self.config.max_timeout)?;
        let id = SandboxId::random();
        let now = UnixMillis::now();
        let spec = SandboxSpec {
            tenant: tenant.id.clone(),
            // The server's comes last; the node refuses one that it does not have.
            tier: request
                .tier
                .or(origin.tier)
                .or(tenant.tier)
                .unwrap_or(self.config.default_tier),
            template: origin.template,
            build: origin.build,
            purpose: Purpose::User,
            alias: origin.alias,
            limits: request
                .resources
                .over(origin.limits, self.config.default_limits),
            env: request.env,
            metadata: request.metadata,
            lifecycle: request.lifecycle.with_timeout(lifetime),
            snapshot: origin.image,
            volumes: Vec::new(),
            access_token: request.secure.then(|| self.tokens.access_token(&id)),
            traffic_token: (!request.network.is_public()).then(|| self.tokens.traffic_token(&id)),
            network: request.network,
            node_token: Secret::random(),
            created_at: now,
            deadline: now.plus(lifetime),
            id,
        };
        let record = request.idempotency.map(|key| key.record(&tenant.id));
        Ok(Plan {
            spec,
            lifetime,
            record,
            _holds: (origin.image_hold, origin.build_hold),
        })
    }

    pub(crate) async fn carry_out(&self, mut plan: Plan) -> Result<Access> {
        if let Some(record) = &plan.record {
            // Before the limit is asked: the first request may be what it counts last.
            let forget = forget_before(plan.spec.created_at);
            if let Some(earlier) = self.store.find_idempotency(record, forget).await? {
                return self.replay(record, earlier);
            }
        }
        // Released when this is over, unless a create has used it.
        let _reservation = self.reserve(&mut plan.spec).await?;
        tracing::Span::current().record("sandbox_id", plan.spec.id.as_str());
        let permit = self.take_permit(&plan.spec)?;
        let made = if let Some(record) = &plan.record {
            if let Some(earlier) = self.write_first(&plan.spec, record).await? {
                return Ok(earlier);
            }
            self.make(plan.spec).await
        } else {
            self.write_and_make(plan.spec).await
        };
        match made.and_then(|status| self.made(&status)) {
            Ok(access) => {
                permit.keep();
                if plan.record.is_some() {
                    self.write_answer(&access).await;
                }
                tracing::info!(lifetime_s = plan.lifetime.as_secs(), "sandbox made");
                Ok(access)
            }
            Err(error) => {
                self.write_failure(&permit.id, &error, plan.record.is_some())
                    .await;
                Err(error)
            }
        }
    }

    /// Takes what the node has ready for such a sandbox, and its id. Not for whoever will be refused.
    async fn reserve(&self, spec: &mut SandboxSpec) -> Result<Option<Reservation>> {
        if !self.is_below_limit(&spec.tenant) {
            return Ok(None);
        }
        let pool_key = PoolKey::of(spec);
        let tier = spec.tier;
        let reservation = self.node.reserve(ReserveRequest { tier, pool_key }).await?;
        let id = reservation.id();
        let renew = |token: &mut Option<Secret>, new: Secret| {
            if token.is_some() {
                *token = Some(new);
            }
        };
        renew(&mut spec.access_token, self.tokens.access_token(id));
        renew(&mut spec.traffic_token, self.tokens.traffic_token(id));
        spec.id = id.clone();
        Ok(Some(reservation))
    }

    /// `Some`: another request with the same idempotency key was first.
    async fn write_first(
        &self,
        spec: &SandboxSpec,
        record: &IdempotencyRecord,
    ) -> Result<Option<Access>> {
        let row = row_of(spec);
        let forget = forget_before(row.created_at);
        match self.store.insert_sandbox_once(&row, record, forget).await? {
            Started::First => Ok(None),
            Started::Repeated(earlier) => self.replay(record, earlier).map(Some),
        }
    }

    /// Both at once: whichever a crash leaves behind, the next start knows what to do with it, and
    /// nobody is answered before both are there.
    async fn write_and_make(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        let (id, row) = (spec.id.clone(), row_of(&spec));
        let (written, made) = tokio::join!(self.store.insert_sandbox(&row), self.make(spec));
        if let Err(error) = written {
            if made.is_ok() {
                self.give_up_making(&id).await;
            }
            return Err(error.into());
        }
        made
    }

    async fn make(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        let id = spec.id.clone();
        let made = tokio::time::timeout(CREATE_LIMIT, self.node.create(spec)).await;
        let Ok(made) = made else {
            self.give_up_making(&id).await;
            return Err(Error::Timeout {
                what: "making the sandbox",
                limit: CREATE_LIMIT,
            });
        };
        Ok(made?)
    }

    /// Ends what could not be made, and waits for that for a moment: it goes on by itself. What the
    /// client is told is why there is no sandbox, not what happened to its remains.
    async fn give_up_making(&self, id: &SandboxId) {
        let (node, target) = (Arc::clone(&self.node), id.clone());
        let ended = async move { node.destroy(&target, EndReason::CreateFailed).await };
        let ended = tokio::spawn(ended.in_current_span());
        match tokio::time::timeout(GIVE_UP_LIMIT, ended).await {
            Ok(Ok(Ok(()) | Err(NodeError::SandboxNotFound(_)))) => {}
            Ok(Ok(Err(error))) => {
                tracing::error!(sandbox_id = %id, %error, "could not end what could not be made");
            }
            Ok(Err(error)) => {
                tracing::error!(sandbox_id = %id, %error, "the task that ends a sandbox failed");
            }
            Err(_) => {
                tracing::error!(sandbox_id = %id, "what could not be made takes long to end");
            }
        }
    }

    /// It is there and on record.
    fn made(&self, status: &SandboxStatus) -> Result<Access> {
        if !self.registry.created(&status.spec.id) {
            return Err(Error::EndedDuringCreate(status.spec.id.clone()));
        }
        self.note_created(&status.spec);
        self.catalogue
            .count_use(&status.spec.template, status.spec.created_at);
        Ok(Access::from(status))
    }

    /// Without it a repeated request is answered from the running sandbox, so it is only logged.
    async fn write_answer(&self, access: &Access) {
        let written = match StoredAnswer::of(access) {
            Ok(answer) => self
                .store
                .complete_idempotency(&access.id, &answer)
                .await
                .map_err(Error::from),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "could not record the answer to a request");
        }
    }

    /// The error of the create itself is what the client gets, so one of these is only logged.
    async fn write_failure(&self, id: &SandboxId, error: &Error, keyed: bool) {
        let end = EndRow::now(EndReason::CreateFailed, &error.to_string());
        let mut written = self.store.end_sandbox(id, &end).await;
        if keyed {
            written = written.and(self.store.forget_idempotency(id).await);
        }
        match written {
            // It may have ended by itself after the node had made it.
            Ok(()) => self.node.forget_end(id).await,
            Err(error) => {
                tracing::warn!(%error, "could not record that a sandbox failed to start");
            }
        }
    }

    fn is_below_limit(&self, tenant: &TenantId) -> bool {
        let limit = self.config.max_sandboxes_per_tenant;
        let is_paused = |id: &SandboxId| self.node.paused(id).is_some();
        self.registry.is_below_limit(tenant, limit, is_paused)
    }

    fn take_permit(&self, spec: &SandboxSpec) -> Result<Permit<'_>> {
        let limit = self.config.max_sandboxes_per_tenant;
        let is_paused = |id: &SandboxId| self.node.paused(id).is_some();
        if self
            .registry
            .reserve(&spec.id, &spec.tenant, limit, is_paused)
        {
            Ok(Permit {
                control: self,
                id: spec.id.clone(),
                kept: false,
            })
        } else {
            Err(Error::TooManySandboxes(limit))
        }
    }
}

/// To have one more sandbox; given back unless kept: also when making the sandbox panics.
struct Permit<'a> {
    control: &'a Control,
    id: SandboxId,
    kept: bool,
}

impl Permit<'_> {
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.control.registry.remove(&self.id);
        }
    }
}

pub(crate) fn row_of(spec: &SandboxSpec) -> SandboxRow {
    SandboxRow {
        id: spec.id.clone(),
        tenant: spec.tenant.clone(),
        template: spec.template.clone(),
        metadata: spec.metadata.clone(),
        created_at: spec.created_at,
        end: None,
    }
}
