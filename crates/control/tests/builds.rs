//! How templates are built, over a real store, a node in memory and a builder that only pretends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soulbox_build::{Base, Credentials, Step, StepKind};
use soulbox_control::{
    Access, Asked, BaseDefinition, BuildConfig, BuildDefinition, BuildLogPage, BuildRequest,
    BuildRow, BuildStatus, BuiltIn, Control, ControlConfig, CreateRequest, Error, LifecycleRequest,
    Published, Reference, Resources, StageDefinition, TemplateInfo, Tenant, WebhookConfig,
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

#[tokio::test]
async fn a_build_becomes_a_template_that_sandboxes_are_made_from() {
    let world = world().await;
    let asked = world
        .control
        .request_build(
            &world.tenant,
            BuildRequest {
                name: "My-App:v1".into(),
                tags: vec!["v2".into()],
                resources: Resources {
                    cpu_count: Some(1),
                    memory_mib: Some(256),
                    ..Resources::default()
                },
            },
        )
        .await
        .unwrap();
    assert_eq!((asked.name.as_str(), asked.public), ("my-app", false));
    assert_eq!(asked.tags, ["v1", "v2"]);
    assert_eq!(world.row(&asked).status, BuildStatus::Waiting);
    let early = world.create("my-app:v1").await.unwrap_err();
    assert!(
        early
            .to_string()
            .starts_with("no build of template 'my-app' has succeeded yet"),
        "{early}"
    );
    world
        .start(&asked, request(image(), vec![run("true")]))
        .await;
    assert_eq!(world.ended(&asked).await.status, BuildStatus::Ready);
    assert_eq!(
        world.log(&asked).await,
        ["[base] FROM debian None", "Run true"]
    );

    for name in ["my-app:v1", "default/my-app:v2", asked.template.as_str()] {
        let made = world.create(name).await;
        if name == asked.template.as_str() {
            // No tag means `default`, which nobody assigned.
            assert!(matches!(made, Err(Error::TagNotFound { .. })));
            continue;
        }
        let made = made.unwrap();
        assert_eq!(made.template, asked.template);
        assert_eq!(made.alias.as_deref(), Some("my-app"));
        let spec = world.node.get(&made.id).unwrap().spec;
        assert_eq!(spec.build.as_ref(), Some(&asked.build));
        assert_eq!(
            (spec.limits.cpu_millis, spec.limits.memory_mib),
            (1000, 256)
        );
    }
    let listed = world.control.templates(&world.tenant);
    let listed = listed.iter().find(|t| t.info.id == asked.template).unwrap();
    assert_eq!(listed.spawn_count, 2);
    assert_eq!(listed.names, ["default/my-app"]);
    let twice = world
        .control
        .start_build(
            &world.tenant,
            asked.template.as_str(),
            &asked.build,
            request(image(), vec![]),
        )
        .await;
    assert!(twice.unwrap_err().to_string().contains("finished already"));
}

#[tokio::test]
async fn a_failure_says_at_which_step_and_leaves_the_tag_where_it_was() {
    let world = world().await;
    let good = world.build("app").await;
    let bad = world.ask("app").await;
    assert_eq!(bad.template, good.template);
    let steps = vec![run("true"), run("fail"), run("true")];
    world.start(&bad, request(image(), steps)).await;
    let ended = world.ended(&bad).await;
    let reason = ended.reason.unwrap();
    assert_eq!(ended.status, BuildStatus::Error);
    assert_eq!(
        (reason.step.as_str(), reason.message.as_str()),
        ("2", "failed to run command 'fail': exit status 1")
    );
    let made = world.create("app").await.unwrap();
    assert_eq!(world.build_of(&made.id), Some(good.build));

    let panics = world.ask("app").await;
    world
        .start(&panics, request(image(), vec![run("panic")]))
        .await;
    let ended = world.ended(&panics).await;
    let reason = ended.reason.unwrap();
    assert_eq!(reason.step, "finalize");
    assert!(reason.message.contains("inside the server"));
}

#[tokio::test]
async fn a_template_stands_on_another_and_an_unknown_one_fails_at_the_base() {
    let world = world().await;
    let below = world.ask("below").await;
    let env = Step {
        kind: StepKind::Env,
        args: vec!["A".into(), "b".into()],
        ..run("")
    };
    let base = BaseDefinition::Template("base".into());
    world.start(&below, request(base, vec![env])).await;
    world.ended(&below).await;
    let above = world.ask("above").await;
    let base = BaseDefinition::Template("below".into());
    world.start(&above, request(base, vec![])).await;
    assert_eq!(world.ended(&above).await.status, BuildStatus::Ready);
    let template = world.builder.templates.build(&above.build).unwrap();
    assert_eq!(template.env["A"], "b");
    assert_eq!(template.env["FROM"], "base");

    let lost = world.ask("lost").await;
    let base = BaseDefinition::Template("nowhere".into());
    world.start(&lost, request(base, vec![])).await;
    let reason = world.ended(&lost).await.reason.unwrap();
    assert_eq!(
        (reason.step.as_str(), reason.message.as_str()),
        ("base", "template 'nowhere' not found")
    );
}

#[tokio::test]
async fn tags_move_to_the_build_that_was_asked_for_last() {
    let world = world().await;
    let held = world.builder.gate.write().await;
    let first = world.ask("app:v1").await;
    world.start(&first, request(image(), vec![])).await;
    eventually("time passes", async || {
        UnixMillis::now() > world.row(&first).created_at
    })
    .await;
    let second = world.ask("app:v1").await;
    world.start(&second, request(image(), vec![])).await;
    drop(held);
    world.ended(&first).await;
    world.ended(&second).await;
    let made = world.create("app:v1").await.unwrap();
    assert_eq!(world.build_of(&made.id).as_ref(), Some(&second.build));

    let (control, tenant) = (&world.control, &world.tenant);
    let assigned = control
        .assign_tags(tenant, "app:v1", vec!["stable".into(), "default".into()])
        .await
        .unwrap();
    assert_eq!(assigned, second.build);
    let made = world.create("app").await.unwrap();
    assert_eq!(world.build_of(&made.id), Some(second.build));
    control
        .remove_tags(tenant, &reference("app"), vec!["stable".into()])
        .await
        .unwrap();
    assert!(matches!(
        world.create("app:stable").await,
        Err(Error::TagNotFound { .. })
    ));
}

#[tokio::test]
async fn a_newer_build_of_the_same_tags_cancels_one_that_was_never_started() {
    let world = world().await;
    let (old, other) = (world.ask("app").await, world.ask("app:v2").await);
    let new = world.ask("app").await;
    assert_eq!(world.row(&old).status, BuildStatus::Error);
    assert_eq!(world.row(&other).status, BuildStatus::Waiting);
    assert_eq!(world.row(&new).status, BuildStatus::Waiting);
    let reason = world.row(&old).reason.unwrap().message;
    assert!(reason.starts_with("build was cancelled"), "{reason}");
}

#[tokio::test]
async fn a_build_is_cancelled_waiting_queued_or_running() {
    let world = world().await;
    let held = world.builder.gate.write().await;
    let mut builds = Vec::new();
    for name in ["a", "b", "c"] {
        let asked = world.ask(name).await;
        world.start(&asked, request(image(), vec![])).await;
        // Also while it only waits for its turn.
        assert_eq!(world.row(&asked).status, BuildStatus::Building);
        builds.push(asked);
    }
    let waiting = world.ask("d").await;
    for asked in builds.iter().chain([&waiting]) {
        let cancel = || {
            let template = asked.template.as_str();
            world
                .control
                .cancel_build(&world.tenant, template, &asked.build)
        };
        cancel().await.unwrap();
        assert_eq!(world.row(asked).status, BuildStatus::Error);
        let reason = world.row(asked).reason.unwrap().message;
        assert!(reason.starts_with("build was cancelled"), "{reason}");
        cancel().await.unwrap();
    }
    drop(held);
    let ready = world.build("e").await;
    let template = ready.template.as_str();
    let late = world
        .control
        .cancel_build(&world.tenant, template, &ready.build)
        .await;
    assert!(matches!(late, Err(Error::BuildEnded(_))));
}

#[tokio::test]
async fn only_so_many_builds_run_at_a_time_and_only_so_many_are_a_tenants() {
    let world = world_with(|builds| builds.max_per_tenant = 4).await;
    let held = world.builder.gate.write().await;
    let mut builds = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let asked = world.ask(name).await;
        world.start(&asked, request(image(), vec![])).await;
        builds.push(asked);
    }
    let fifth = world.control.request_build(&world.tenant, ask("e")).await;
    assert!(matches!(fifth, Err(Error::TooManyBuilds(4))));
    drop(held);
    for asked in &builds {
        assert_eq!(world.ended(asked).await.status, BuildStatus::Ready);
    }
    assert!(world.builder.most_running.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn a_build_that_takes_too_long_is_told_so() {
    let world = world_with(|builds| builds.max_duration = Duration::from_millis(10)).await;
    let _held = world.builder.gate.write().await;
    let asked = world.ask("app").await;
    world.start(&asked, request(image(), vec![])).await;
    let reason = world.ended(&asked).await.reason.unwrap();
    assert_eq!(reason.message, "build timed out");
}

#[tokio::test]
async fn builds_go_on_after_a_restart_with_their_credentials() {
    let mut world = world().await;
    world.build("below").await;
    let first = world.ask("app").await;
    let base = BaseDefinition::Image {
        reference: "registry/private".into(),
        credentials: Some(Credentials::Basic {
            username: "me".into(),
            password: Secret::new("open-sesame"),
        }),
    };
    let (second, third) = (world.ask("second").await, world.ask("third").await);
    {
        let builder = Arc::clone(&world.builder);
        let _held = builder.gate.write().await;
        world
            .start(&first, request(base, vec![run("open-sesame")]))
            .await;
        let below = BaseDefinition::Template("below".into());
        world.start(&second, request(below, vec![])).await;
        eventually("two run", async || world.builder.requests().len() == 3).await;
        // Queued only.
        world.start(&third, request(image(), vec![])).await;
        world.restart().await;
    }
    for asked in [&first, &second, &third] {
        let ended = world.ended(asked).await;
        assert_eq!(ended.status, BuildStatus::Ready, "{:?}", ended.reason);
    }
    let requests = world.builder.requests();
    let again = requests.iter().rfind(|r| r.build == first.build).unwrap();
    let Base::Image {
        credentials: Some(Credentials::Basic { password, .. }),
        ..
    } = &again.stages[0].base
    else {
        panic!("{again:?}");
    };
    assert_eq!(password.expose(), "open-sesame");
    let log = world.log(&first).await;
    assert!(log.iter().any(|line| line.contains("restarted")), "{log:?}");
    assert_eq!(log.last().unwrap(), "Run ***");
    for file in ["soulbox.db", "soulbox.db-wal"] {
        let bytes = std::fs::read(world.folder.path().join(file)).unwrap();
        let found = bytes.windows(11).any(|window| window == b"open-sesame");
        assert!(!found, "{file}");
    }
}

#[tokio::test]
async fn a_build_that_cannot_go_on_after_a_restart_ends_with_the_reason() {
    let mut world = world().await;
    let builder = Arc::clone(&world.builder);
    let _held = builder.gate.write().await;
    let asked = world.ask("app").await;
    world.start(&asked, request(image(), vec![])).await;
    world.control.drain(Duration::from_secs(10)).await;
    world.config.seed = Secret::new("ff00");
    world.reopen().await;
    let ended = world.row(&asked);
    assert_eq!(ended.status, BuildStatus::Error);
    let reason = ended.reason.unwrap().message;
    assert!(reason.contains("was the seed file replaced?"), "{reason}");

    let again = world.ask("app").await;
    world.start(&again, request(image(), vec![])).await;
    world.control.drain(Duration::from_secs(10)).await;
    world.config.builds = None;
    world.reopen().await;
    let listed = world.control.templates(&world.tenant);
    let build = listed[0].builds.last().unwrap();
    assert_eq!(build.id, again.build);
    assert_eq!(build.status, BuildStatus::Error);
}

#[tokio::test]
async fn what_is_ready_stays_ready_after_a_restart() {
    let mut world = world().await;
    let asked = world.build("app:v1").await;
    world.restart().await;
    let made = world.create("app:v1").await.unwrap();
    assert_eq!(world.build_of(&made.id), Some(asked.build.clone()));
    world.builder.templates.forget(&asked.build).unwrap();
    world.restart().await;
    assert!(matches!(
        world.create("app:v1").await,
        Err(Error::TagNotFound { .. })
    ));
}

#[tokio::test]
async fn a_snapshot_remembers_the_build_and_keeps_it() {
    let world = world().await;
    let asked = world.build("app").await;
    let made = world.create("app").await.unwrap();
    let (control, tenant) = (&world.control, &world.tenant);
    let taken = control
        .create_snapshot(tenant, &made.id, Some("snap"))
        .await
        .unwrap();
    let child = world.create(&taken.id()).await.unwrap();
    assert_eq!(world.build_of(&child.id), Some(asked.build.clone()));
    assert_eq!(child.template, asked.template);

    let used = control.delete_template(tenant, &reference("app")).await;
    let Err(Error::TemplateInUse { users, .. }) = used else {
        panic!("{used:?}");
    };
    assert!(users.ends_with("and 1 more"), "{users}");
    for id in [&made.id, &child.id] {
        control.kill(tenant, id).await.unwrap();
    }
    control
        .delete_template(tenant, &reference("app"))
        .await
        .unwrap();
    eventually("garbage is collected", async || {
        world.builder.kept().last() == Some(&vec![asked.build.clone()])
    })
    .await;
    let child = world.create("snap").await.unwrap();
    assert_eq!(world.build_of(&child.id), Some(asked.build));
}

#[tokio::test]
async fn what_nothing_needs_goes_and_a_name_is_free_again() {
    let world = world().await;
    let old = world.build("app").await;
    eventually("time passes", async || {
        UnixMillis::now() > world.row(&old).created_at
    })
    .await;
    let new = world.build("app").await;
    let (control, tenant) = (&world.control, &world.tenant);
    let other = world.build("other").await;
    control
        .delete_template(tenant, &reference("other"))
        .await
        .unwrap();
    eventually("builds are removed", async || {
        let templates = &world.builder.templates;
        templates.build(&old.build).is_none() && templates.build(&other.build).is_none()
    })
    .await;
    assert!(world.builder.templates.build(&new.build).is_some());
    let again = control.delete_template(tenant, &reference("other")).await;
    assert!(matches!(again, Err(Error::TemplateNotFound(_))));
    let fresh = world.build("other").await;
    assert_ne!(fresh.template, other.template);
}

#[tokio::test]
async fn no_build_goes_while_it_is_not_known_what_something_stands_on() {
    let world = world().await;
    let asked = world.build("app").await;
    world.node.keeps_unknown.store(true, Ordering::Relaxed);
    let app = reference("app");
    let deleted = world.control.delete_template(&world.tenant, &app).await;
    deleted.unwrap();
    // What it does in the background is done then.
    world.control.drain(Duration::from_secs(20)).await;
    assert!(world.builder.templates.build(&asked.build).is_some());
}

#[tokio::test]
async fn deleting_a_template_cancels_its_builds() {
    let world = world().await;
    let _held = world.builder.gate.write().await;
    let asked = world.ask("app").await;
    world.start(&asked, request(image(), vec![])).await;
    world
        .control
        .delete_template(&world.tenant, &reference("app"))
        .await
        .unwrap();
    eventually("nothing is left", async || {
        let store = Store::open(&world.folder.path().join("soulbox.db"))
            .await
            .unwrap();
        let empty = store.templates().await.unwrap().is_empty();
        store.close().await;
        empty
    })
    .await;
}

#[tokio::test]
async fn templates_and_snapshots_share_their_names() {
    let world = world().await;
    world.build("app").await;
    let made = world.create("app").await.unwrap();
    let (control, tenant) = (&world.control, &world.tenant);
    let taken = control
        .create_snapshot(tenant, &made.id, Some("app:v2"))
        .await;
    assert!(matches!(taken, Err(Error::NameTaken { .. })), "{taken:?}");
    control
        .create_snapshot(tenant, &made.id, Some("snap"))
        .await
        .unwrap();
    let built = control.request_build(tenant, ask("snap")).await;
    assert!(matches!(built, Err(Error::NameTaken { .. })), "{built:?}");
    let id = control.request_build(tenant, ask(BASE)).await;
    assert!(matches!(id, Err(Error::NameTaken { .. })), "{id:?}");
    let asked = world.ask("another").await;
    let snapshot = BaseDefinition::Template("snap".into());
    world.start(&asked, request(snapshot, vec![])).await;
    let reason = world.ended(&asked).await.reason.unwrap();
    assert!(reason.message.contains("is a snapshot"), "{reason:?}");
}

#[tokio::test]
async fn a_published_template_is_used_by_others_and_changed_by_nobody_else() {
    let world = world().await;
    let asked = world.build("app").await;
    let control = &world.control;
    let (other, _) = control.create_tenant("other").await.unwrap();
    let create_as = async |name: &str| control.create_sandbox(&other, create(name)).await;
    for name in ["default/app", asked.template.as_str()] {
        let made = create_as(name).await;
        assert!(matches!(made, Err(Error::TemplateOfAnother(_))), "{made:?}");
    }
    let publish = async |tenant: &Tenant, how| {
        let name = reference(asked.template.as_str());
        control.publish_template(tenant, &name, how).await
    };
    let shown = publish(&world.tenant, Some(Published::InNamespace)).await;
    assert_eq!(shown.unwrap().names, ["default/app"]);
    for name in ["default/app", asked.template.as_str()] {
        let made = create_as(name).await.unwrap();
        assert_eq!(world.build_of(&made.id).as_ref(), Some(&asked.build));
    }
    assert!(matches!(
        create_as("app").await,
        Err(Error::TemplateNotFound(_))
    ));
    let stolen = publish(&other, None).await;
    assert!(matches!(stolen, Err(Error::TemplateOfAnother(_))));
    let stolen = control
        .delete_template(&other, &reference("default/app"))
        .await;
    assert!(matches!(stolen, Err(Error::TemplateOfAnother(_))));
    let shown = publish(&world.tenant, Some(Published::Everywhere)).await;
    assert_eq!(shown.unwrap().names, ["default/app", "app"]);
    create_as("app").await.unwrap();

    let used = control
        .delete_template(&world.tenant, &reference("app"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        used.contains("sandbox of another team and 2 more"),
        "{used}"
    );

    let theirs = control.request_build(&other, ask("app")).await.unwrap();
    let claim = control
        .publish_template(&other, &reference("app"), Some(Published::Everywhere))
        .await;
    assert!(matches!(claim, Err(Error::NameTaken { .. })), "{claim:?}");
    assert_ne!(theirs.template, asked.template);
    publish(&world.tenant, None).await.unwrap();
    assert!(matches!(
        create_as("default/app").await,
        Err(Error::TemplateOfAnother(_))
    ));
}

fn agent(version: &str) -> BuiltIn {
    BuiltIn {
        name: "agent".into(),
        version: version.into(),
        limits: Limits::default(),
        base: Base::Debian {
            packages: vec!["git".into()],
        },
        steps: vec![run("true")],
        start: None,
        ready: None,
    }
}

#[tokio::test]
async fn a_built_in_is_built_when_it_is_first_wanted() {
    let mut world = world_with(|builds| builds.builtins = vec![agent("1")]).await;
    let exists = world.control.resolve_template(&world.tenant, "agent");
    let shown = exists.unwrap();
    assert!(shown.info.public && shown.namespace.is_none());
    assert_eq!(shown.status, BuildStatus::Waiting);
    let made = world.create("agent").await.unwrap();
    let first = world.build_of(&made.id).unwrap();
    let made = world.create("agent").await.unwrap();
    assert_eq!(world.build_of(&made.id).as_ref(), Some(&first));
    assert_eq!(world.builder.requests().len(), 1);
    let again = world.control.build_builtin("agent").await.unwrap();
    assert_eq!(again.row.id, first);
    let gone = world
        .control
        .delete_template(&world.tenant, &reference("agent"))
        .await;
    assert!(matches!(gone, Err(Error::TemplateForbidden(_))));

    world.config.builds.as_mut().unwrap().builtins = vec![agent("2")];
    world.restart().await;
    // The old form serves while the new one is being built.
    let made = world.create("agent").await.unwrap();
    assert_eq!(world.build_of(&made.id).as_ref(), Some(&first));
    eventually("it is built anew", async || {
        let made = world.create("agent").await.unwrap();
        let build = world.build_of(&made.id).unwrap();
        world.control.kill(&world.tenant, &made.id).await.unwrap();
        build != first
    })
    .await;
    assert_eq!(world.builder.requests().len(), 2);
}

#[tokio::test]
async fn a_built_in_that_takes_long_is_told_to_be_on_its_way_and_survives_a_restart() {
    let mut world = world_with(|builds| {
        builds.builtins = vec![agent("1")];
        builds.patience = Duration::from_millis(1);
    })
    .await;
    let builder = Arc::clone(&world.builder);
    let held = builder.gate.write().await;
    eventually("its last line is told", async || {
        let wait = world.create("agent").await;
        let Err(error @ Error::TemplateBuilding { .. }) = wait else {
            panic!("{wait:?}");
        };
        let text = error.to_string();
        assert!(text.contains("`soulbox template build --builtin agent`"));
        text.contains("[base] FROM Debian")
    })
    .await;
    world.config.builds.as_mut().unwrap().patience = Duration::from_secs(10);
    world.restart().await;
    drop(held);
    world.create("agent").await.unwrap();
    let builds: std::collections::HashSet<_> = world
        .builder
        .requests()
        .into_iter()
        .map(|request| request.build)
        .collect();
    assert_eq!(builds.len(), 1);
}

#[tokio::test]
async fn a_template_on_a_built_in_that_is_not_there_yet_waits_for_it() {
    let mut world = world_with(|builds| builds.builtins = vec![agent("1")]).await;
    let builder = Arc::clone(&world.builder);
    let held = builder.gate.write().await;
    let (cancelled, asked) = (world.ask("cancelled").await, world.ask("app").await);
    for asked in [&cancelled, &asked] {
        let base = BaseDefinition::Template("agent".into());
        world.start(asked, request(base, vec![])).await;
    }
    world
        .control
        .cancel_build(&world.tenant, "cancelled", &cancelled.build)
        .await
        .unwrap();
    world.restart().await;
    drop(held);
    let ended = world.ended(&asked).await;
    assert_eq!(ended.status, BuildStatus::Ready, "{:?}", ended.reason);
    assert_eq!(world.row(&cancelled).status, BuildStatus::Error);
}

#[tokio::test]
async fn a_built_in_that_cannot_be_built_says_why() {
    let mut broken = agent("1");
    broken.steps = vec![run("fail")];
    let world = world_with(|builds| builds.builtins = vec![broken]).await;
    for _ in 0..2 {
        let failed = world.create("agent").await;
        let Err(error @ Error::TemplateBuildFailed { .. }) = failed else {
            panic!("{failed:?}");
        };
        assert!(error.to_string().contains("exit status 1"), "{error}");
    }
    assert_eq!(world.builder.requests().len(), 1);
}

#[tokio::test]
async fn a_waiting_sandbox_is_taken_when_it_fits() {
    let world = world().await;
    let asked = world.build("app").await;
    let warm = SandboxId::random();
    world.node.warm(&asked.template, &asked.build, &warm);
    let made = world.create("app").await.unwrap();
    assert_eq!(made.id, warm);
    let spec = world.node.get(&warm).unwrap().spec;
    assert_eq!(spec.access_token, made.access_token);
    let cold = world.create("app").await.unwrap();
    assert_ne!(cold.id, warm);
    assert_ne!(cold.access_token, made.access_token);
    let requests = world.node.requests();
    assert_eq!(requests.len(), 2);
    let key = requests[0].pool_key.as_ref().unwrap();
    assert_eq!(key.disk_mib, Limits::default().disk_mib);
    assert!(world.node.reserved().is_empty());
}
