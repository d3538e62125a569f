//! A control plane over a real store and a node in memory.

use super::*;

pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) node: Arc<MemoryNode>,
    pub(crate) control: Arc<Control>,
    pub(crate) tenant: Tenant,
    pub(crate) key: Secret,
}

pub(crate) fn config() -> ControlConfig {
    ControlConfig {
        seed: Secret::new("00ff"),
        max_timeout: DAY,
        default_tier: soulbox_types::Tier::default(),
        default_limits: Limits::default(),
        max_sandboxes_per_tenant: 3,
        templates: vec![TemplateInfo {
            id: "basebasebasebasebase".parse().unwrap(),
            build_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            aliases: vec!["base".into()],
            limits: Limits::default(),
            created_at: UnixMillis(1),
            public: true,
        }],
        volumes: None,
        volume_limit_mib: 64,
        webhooks: soulbox_control::WebhookConfig::default(),
        builds: None,
    }
}

pub(crate) async fn store(folder: &Path) -> Store {
    Store::open(&folder.join("soulbox.db")).await.unwrap()
}

pub(crate) async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let node = Arc::new(MemoryNode::default());
    let control = Control::open(config(), store(folder.path()).await, node.clone())
        .await
        .unwrap();
    let key = control.ensure_default_tenant().await.unwrap().unwrap().key;
    let tenant = control.tenant("default").unwrap();
    World {
        folder,
        node,
        control,
        tenant,
        key,
    }
}

impl World {
    pub(crate) async fn create(&self, request: CreateRequest) -> Result<Access, Error> {
        self.control.create_sandbox(&self.tenant, request).await
    }

    pub(crate) async fn make(&self) -> SandboxId {
        self.create(request()).await.unwrap().id
    }

    pub(crate) async fn row(&self, id: &SandboxId) -> SandboxRow {
        store(self.folder.path())
            .await
            .sandbox(id)
            .await
            .unwrap()
            .unwrap()
    }

    pub(crate) async fn events(&self, id: &SandboxId) -> Vec<Event> {
        let filter = EventFilter {
            sandbox: Some(id.clone()),
            oldest_first: true,
            limit: 10,
            ..EventFilter::default()
        };
        self.control.events(&self.tenant, &filter).await.unwrap()
    }

    pub(crate) async fn killed(&self, id: &SandboxId) -> Vec<Event> {
        let mut events = self.events(id).await;
        events.retain(|event| event.kind == "killed");
        events
    }

    pub(crate) async fn kinds_heard(&self, id: &SandboxId) -> Vec<String> {
        let events = self.events(id).await.into_iter();
        events.map(|event| event.kind).collect()
    }

    /// As events tell them.
    pub(crate) async fn ends_heard(&self, id: &SandboxId) -> Vec<String> {
        let events = self.killed(id).await.into_iter();
        let reason = |event: Event| event.data["reason"].as_str().unwrap().to_owned();
        events.map(reason).collect()
    }

    pub(crate) fn deadline(&self, id: &SandboxId) -> UnixMillis {
        self.node.get(id).unwrap().spec.deadline
    }

    /// The same data folder and node, another server.
    pub(crate) async fn restart(&mut self) {
        // The first one goes before the second comes, as if killed.
        let elsewhere = tempfile::tempdir().unwrap();
        let nobody = Arc::new(MemoryNode::default());
        let other = Control::open(config(), store(elsewhere.path()).await, nobody);
        let killed = Arc::downgrade(&self.control);
        self.control = other.await.unwrap();
        // What it does in the background keeps it, and would record ends beside the next one.
        eventually("the first one is gone", async || killed.strong_count() == 0).await;
        self.control = Control::open(config(), store(self.folder.path()).await, self.node.clone())
            .await
            .unwrap();
    }
}

pub(crate) fn request() -> CreateRequest {
    CreateRequest {
        template: "base".into(),
        tier: None,
        timeout: 300,
        metadata: BTreeMap::new(),
        env: BTreeMap::new(),
        secure: true,
        network: NetworkPolicy::default(),
        lifecycle: LifecycleRequest::default(),
        resources: Resources::default(),
        volume_mounts: Vec::new(),
        idempotency: None,
        wait: Wait::Usual(Duration::from_secs(10)),
    }
}

pub(crate) fn keyed(key: &str, body: &str) -> CreateRequest {
    let key = IdempotencyKey::new(key, body.as_bytes()).unwrap();
    CreateRequest {
        idempotency: Some(key),
        ..request()
    }
}

/// Waits for what happens in another task; the bound only ends a broken test.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !check().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .expect(what);
}

pub(crate) fn stray(tenant: TenantId) -> SandboxSpec {
    SandboxSpec {
        tenant,
        template: "basebasebasebasebase".parse().unwrap(),
        deadline: UnixMillis::now().plus(DAY),
        ..soulbox_testkit::spec()
    }
}

pub(crate) fn row_of(spec: &SandboxSpec) -> SandboxRow {
    SandboxRow {
        id: spec.id.clone(),
        tenant: spec.tenant.clone(),
        template: spec.template.clone(),
        metadata: BTreeMap::new(),
        created_at: spec.created_at,
        end: None,
    }
}

pub(crate) async fn record(world: &World, spec: &SandboxSpec) {
    let store = store(world.folder.path()).await;
    store.insert_sandbox(&row_of(spec)).await.unwrap();
}
