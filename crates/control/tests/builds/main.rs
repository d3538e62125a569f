//! How templates are built, over a real store, a node in memory and a builder that only pretends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod building;
mod built_ins;
mod garbage;
mod names;
mod restarts;
mod scheduling;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soulbox_build::{Base, Credentials, Step, StepKind};
use soulbox_control::{
    Access, Asked, BaseDefinition, BuildConfig, BuildDefinition, BuildLogPage, BuildRequest,
    BuildRow, BuildStatus, BuiltIn, Control, ControlConfig, CreateRequest, Error, LifecycleRequest,
    Published, Reference, Resources, StageDefinition, TemplateInfo, Tenant, Wait, WebhookConfig,
};
use soulbox_runtime::{LogLevel, Node};
use soulbox_store::Store;
use soulbox_template::Template;
use soulbox_testkit::{MemoryBuilds, MemoryNode};
use soulbox_types::{Limits, NetworkPolicy, SandboxId, Secret, UnixMillis};
use tempfile::TempDir;

const BASE: &str = "basebasebasebasebase";

struct World {
    folder: TempDir,
    node: Arc<MemoryNode>,
    builder: Arc<MemoryBuilds>,
    config: ControlConfig,
    control: Arc<Control>,
    tenant: Tenant,
}

async fn world() -> World {
    world_with(|_| {}).await
}

async fn world_with(change: impl FnOnce(&mut BuildConfig)) -> World {
    let folder = tempfile::tempdir().unwrap();
    let builder = MemoryBuilds::new(folder.path());
    builder.templates.set_own(described(BASE, "base"));
    let mut builds = BuildConfig::new(
        builder.clone(),
        builder.templates.clone(),
        folder.path().join("logs"),
    );
    builds.parallel = 2;
    change(&mut builds);
    let config = ControlConfig {
        seed: Secret::new("00ff"),
        max_timeout: Duration::from_hours(24),
        default_tier: soulbox_types::Tier::default(),
        default_limits: Limits::default(),
        max_sandboxes_per_tenant: 10,
        templates: vec![TemplateInfo {
            id: BASE.parse().unwrap(),
            build_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            aliases: vec!["base".into()],
            limits: Limits::default(),
            created_at: UnixMillis(1),
            public: true,
        }],
        volumes: None,
        volume_limit_mib: 64,
        webhooks: WebhookConfig::default(),
        builds: Some(builds),
    };
    let node = Arc::new(MemoryNode::default());
    let store = Store::open(&folder.path().join("soulbox.db"))
        .await
        .unwrap();
    let control = Control::open(config.clone(), store, node.clone())
        .await
        .unwrap();
    control.ensure_default_tenant().await.unwrap();
    World {
        tenant: control.tenant("default").unwrap(),
        folder,
        node,
        builder,
        config,
        control,
    }
}

fn described(id: &str, build: &str) -> Template {
    Template {
        id: id.parse().unwrap(),
        build_id: build.into(),
        aliases: Vec::new(),
        overlays: Vec::new(),
        env: BTreeMap::from([("FROM".into(), build.into())]),
        default_user: "user".into(),
        default_workdir: String::new(),
        limits: Limits::default(),
        start: None,
        created_at: UnixMillis(1),
    }
}

fn ask(name: &str) -> BuildRequest {
    BuildRequest {
        name: name.into(),
        ..BuildRequest::default()
    }
}

fn run(command: &str) -> Step {
    Step {
        kind: StepKind::Run,
        args: vec![command.into()],
        files_hash: None,
        from: None,
        force: false,
    }
}

fn request(base: BaseDefinition, steps: Vec<Step>) -> BuildDefinition {
    BuildDefinition {
        stages: vec![StageDefinition { base, steps }],
        start: None,
        ready: None,
        force: false,
    }
}

fn image() -> BaseDefinition {
    BaseDefinition::Image {
        reference: "debian".into(),
        credentials: None,
    }
}

fn create(template: &str) -> CreateRequest {
    CreateRequest {
        template: template.into(),
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

fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

impl World {
    async fn ask(&self, name: &str) -> Asked {
        let asked = self.control.request_build(&self.tenant, ask(name)).await;
        asked.unwrap()
    }

    async fn start(&self, asked: &Asked, request: BuildDefinition) {
        let (template, build) = (asked.template.as_str(), &asked.build);
        let started = self
            .control
            .start_build(&self.tenant, template, build, request);
        started.await.unwrap();
    }

    fn row(&self, asked: &Asked) -> BuildRow {
        let template = asked.template.as_str();
        let build = self.control.build(&self.tenant, template, &asked.build);
        build.unwrap().row
    }

    async fn ended(&self, asked: &Asked) -> BuildRow {
        eventually("the build ends", async || self.row(asked).status.is_final()).await;
        self.row(asked)
    }

    /// A template that can be used.
    async fn build(&self, name: &str) -> Asked {
        let asked = self.ask(name).await;
        self.start(&asked, request(image(), vec![])).await;
        assert_eq!(self.ended(&asked).await.status, BuildStatus::Ready);
        asked
    }

    async fn create(&self, template: &str) -> Result<Access, Error> {
        self.control
            .create_sandbox(&self.tenant, create(template))
            .await
    }

    fn build_of(&self, sandbox: &SandboxId) -> Option<String> {
        self.node.get(sandbox).unwrap().spec.build.clone()
    }

    async fn log(&self, asked: &Asked) -> Vec<String> {
        let template = asked.template.as_str();
        let build = self.control.build(&self.tenant, template, &asked.build);
        let build = build.unwrap();
        let page = BuildLogPage::FromIndex {
            index: 0,
            limit: 100,
        };
        let lines = self.control.build_log(&build, page, LogLevel::Debug);
        let lines = lines.await.unwrap().into_iter();
        lines.map(|line| line.message).collect()
    }

    /// The same data folder and node, another server, after an orderly end.
    async fn restart(&mut self) {
        self.control.drain(Duration::from_secs(10)).await;
        self.reopen().await;
    }

    async fn reopen(&mut self) {
        let file = self.folder.path().join("soulbox.db");
        let store = Store::open(&file).await.unwrap();
        let control = Control::open(self.config.clone(), store, self.node.clone());
        self.control = control.await.unwrap();
    }
}

/// Waits for what happens in another task; the bound only ends a broken test.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !check().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .expect(what);
}
