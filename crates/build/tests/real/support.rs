//! A machine with a node and a builder, all its own.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use soulbox_build::{
    Base, BuildFailure, BuildLog, BuildRequest, Builder, BuilderConfig, Builds, Stage, Step,
    StepKind,
};
use soulbox_envd_client::{CommandSpec, EnvdClient, NodeDial};
use soulbox_host_template::{HostOptions, prepare_host};
use soulbox_image::{ImageConfig, ImageStore};
use soulbox_jail::Jail;
use soulbox_machine::{Instance, MachineConfig};
use soulbox_node::{AdmissionConfig, LocalNode, NodeConfig, PoolConfig};
use soulbox_runtime::{BuildNode, LogLevel, Node};
use soulbox_template::{Template, Templates};
use soulbox_types::{EndReason, Limits, SandboxSpec, TemplateId, TenantId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The machine may be busy, and Debian takes a while.
const PATIENCE: Duration = Duration::from_mins(5);

pub(crate) struct Machine {
    pub(crate) builder: Builder,
    pub(crate) templates: Arc<Templates>,
    pub(crate) base: Arc<Template>,
    node: Arc<LocalNode>,
    folder: tempfile::TempDir,
}

impl Drop for Machine {
    /// A test that failed half-way must not leave the machine changed.
    fn drop(&mut self) {
        let Ok(text) = fs_err::read(self.folder.path().join("instance.json")) else {
            return;
        };
        let instance: Instance = serde_json::from_slice(&text).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .unwrap()
                .block_on(soulbox_machine::Machine::remove_traces(&instance));
        })
        .join()
        .unwrap();
    }
}

impl Machine {
    /// `None`, with the reason printed, where the machine cannot run it.
    pub(crate) async fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a jail needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().to_owned();
        let programs = soulbox_guest_programs::install(&data_dir.join("bin")).unwrap();
        let options = HostOptions {
            include_opt: false,
            sudo: programs.sudo.clone(),
            extra_ca: Vec::new(),
        };
        let base = prepare_host(&data_dir.join("templates/base"), &options).unwrap();
        let templates = Arc::new(Templates::open(data_dir.join("templates/builds")).unwrap());
        templates.set_own(base.clone());
        let sudo = programs.sudo.clone();
        let machine = soulbox_machine::Machine::open(MachineConfig {
            sandboxes_dir: data_dir.join("sandboxes"),
            volumes_dir: data_dir.join("volumes"),
            data_dir: data_dir.clone(),
            programs,
            network_range: None,
            open_ranges: Vec::new(),
            pool: 1,
            max_sandboxes: 16,
            disk_sizes: vec![base.limits.disk_mib],
        })
        .await
        .unwrap();
        let jail = Jail::open(machine).unwrap();
        let node = LocalNode::open(
            NodeConfig {
                sandboxes_dir: data_dir.join("sandboxes"),
                snapshots_dir: data_dir.join("snapshots"),
                ends_dir: data_dir.join("ends"),
                quarantine_dir: data_dir.join("quarantine"),
                volumes_dir: data_dir.join("volumes"),
                max_sandboxes: 16,
                min_free_disk: 0,
                templates: Arc::clone(&templates),
                ready_limit: NodeConfig::READY_LIMIT,
                pool: PoolConfig::default(),
                admission: AdmissionConfig::default(),
            },
            jail,
        )
        .await
        .unwrap();
        let config = BuilderConfig {
            min_free_disk: 0,
            ..BuilderConfig::new(data_dir.join("templates"), sudo)
        };
        let images = ImageStore::open(data_dir.join("images"), ImageConfig::default()).unwrap();
        let builder = Builder::open(
            config,
            Arc::clone(&node) as Arc<dyn BuildNode>,
            Arc::clone(&templates),
            Arc::new(images),
        )
        .unwrap();
        Some(Self {
            builder,
            templates,
            base: Arc::new(base),
            node,
            folder,
        })
    }

    pub(crate) fn request(&self, steps: Vec<Step>) -> BuildRequest {
        BuildRequest {
            build: uuid::Uuid::new_v4().to_string(),
            template: TemplateId::random(),
            tenant: tenant(),
            aliases: vec!["test".to_owned()],
            limits: Limits {
                cpu_millis: 2000,
                memory_mib: 512,
                disk_mib: 1024,
                pids: 256,
            },
            stages: vec![Stage {
                base: Base::Template(Arc::clone(&self.base)),
                steps,
                lanes: Vec::new(),
            }],
            start: None,
            ready: None,
            force: false,
        }
    }

    pub(crate) async fn build(
        &self,
        request: BuildRequest,
    ) -> (Result<Arc<Template>, BuildFailure>, Arc<Lines>) {
        let log = Lines::new();
        let build = self
            .builder
            .build(request, log.clone(), CancellationToken::new());
        let built = tokio::time::timeout(PATIENCE, build).await;
        (built.unwrap(), log)
    }

    pub(crate) async fn upload(&self, archive: &[u8]) -> String {
        let hash = hex::encode(Sha256::digest(archive));
        let part: io::Result<Bytes> = Ok(Bytes::copy_from_slice(archive));
        let upload = stream::iter([part]).boxed();
        self.builder
            .receive_files(&tenant(), &hash, upload)
            .await
            .unwrap();
        hash
    }

    /// What a command prints in a user's sandbox of the template.
    pub(crate) async fn say(&self, template: &Template, script: &str) -> String {
        self.say_as(template, script, "").await
    }

    pub(crate) async fn say_as(&self, template: &Template, script: &str, user: &str) -> String {
        self.output_of(template, CommandSpec::login_shell(script, user))
            .await
    }

    /// Where there is no bash.
    pub(crate) async fn say_with(&self, template: &Template, shell: &str, script: &str) -> String {
        let command = CommandSpec {
            program: shell.to_owned(),
            ..CommandSpec::login_shell(script, "")
        };
        self.output_of(template, command).await
    }

    async fn output_of(&self, template: &Template, command: CommandSpec) -> String {
        let spec = SandboxSpec {
            tenant: tenant(),
            template: template.id.clone(),
            build: Some(template.build_id.clone()),
            limits: template.limits,
            ..soulbox_testkit::spec()
        };
        self.node.create(spec.clone()).await.unwrap();
        let node = Arc::clone(&self.node) as Arc<dyn Node>;
        let guest = EnvdClient::new(Arc::new(NodeDial::new(node, spec.id.clone())), &spec);
        let mut text = Vec::new();
        guest
            .run(
                &command,
                &mut |_, bytes| text.extend_from_slice(bytes),
                PATIENCE,
            )
            .await
            .unwrap();
        self.node
            .destroy(&spec.id, EndReason::Killed)
            .await
            .unwrap();
        String::from_utf8(text).unwrap()
    }

    /// No sandbox, no lent build, nothing unfinished is left.
    pub(crate) async fn is_clean(&self) {
        let sandboxes = self.names("sandboxes");
        assert!(sandboxes.is_empty(), "{sandboxes:?}");
        let lent: Vec<_> = self
            .templates
            .all()
            .into_iter()
            .filter(|template| template.aliases.is_empty())
            .collect();
        assert!(lent.is_empty(), "{lent:?}");
        let unfinished = || {
            let names = self.names("templates/steps");
            names.iter().any(|name| name.contains(".new"))
        };
        let start = std::time::Instant::now();
        while unfinished() {
            assert!(
                start.elapsed() < PATIENCE,
                "{:?}",
                self.names("templates/steps")
            );
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn step_count(&self) -> usize {
        self.names("templates/steps").len()
    }

    /// Every cached step loses what it is made of.
    pub(crate) fn damage_steps(&self) {
        for step in self.steps() {
            fs_err::remove_file(step.join("meta.json")).unwrap();
        }
    }

    pub(crate) fn age_steps(&self, age: Duration) {
        for step in self.steps() {
            let file = std::fs::File::options()
                .write(true)
                .open(step.join("meta.json"))
                .unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
    }

    fn steps(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("templates/steps");
        let names = self.names("templates/steps");
        names.iter().map(|name| folder.join(name)).collect()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        fs_err::read_dir(self.folder.path().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

fn tenant() -> TenantId {
    "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
}

/// The log of a build.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Mutex<Vec<String>>,
    added: Notify,
}

impl Lines {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            lines: Mutex::default(),
            added: Notify::new(),
        })
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.lines.lock().iter().any(|line| line.contains(text))
    }

    pub(crate) async fn wait_for(&self, text: &str) {
        let waiting = async {
            while !self.has(text) {
                self.added.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }
}

impl BuildLog for Lines {
    fn line(&self, _level: LogLevel, _step: Option<&str>, message: &str) {
        self.lines.lock().push(message.to_owned());
        self.added.notify_one();
    }
}

pub(crate) fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    archive.into_inner().unwrap()
}

pub(crate) fn step(kind: StepKind, args: &[&str]) -> Step {
    Step {
        kind,
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        files_hash: None,
        from: None,
        force: false,
    }
}

pub(crate) fn run(command: &str) -> Step {
    step(StepKind::Run, &[command])
}

pub(crate) fn run_as(command: &str, user: &str) -> Step {
    step(StepKind::Run, &[command, user])
}

pub(crate) fn env(args: &[&str]) -> Step {
    step(StepKind::Env, args)
}

pub(crate) fn workdir(path: &str) -> Step {
    step(StepKind::Workdir, &[path])
}

pub(crate) fn user(name: &str) -> Step {
    step(StepKind::User, &[name])
}

pub(crate) fn copy(src: &str, dest: &str, hash: &str) -> Step {
    Step {
        files_hash: Some(hash.to_owned()),
        ..step(StepKind::Copy, &[src, dest, "", ""])
    }
}
