//! A builder that only says what it would do: enough to see what the control plane does with one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::StreamExt;
use parking_lot::Mutex;
use soulbox_build::{
    Base, BuildDisk, BuildFailure, BuildLog, BuildRequest, Builds, FilesError, StepKind, Upload,
};
use soulbox_runtime::LogLevel;
use soulbox_template::{Template, Templates};
use soulbox_types::{StartCommand, TenantId, UnixMillis};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

pub const MOST_BYTES: u64 = 1000;

#[derive(Debug)]
pub struct MemoryBuilds {
    pub templates: Arc<Templates>,
    /// A test that holds it for writing holds up every build, after its first line.
    pub gate: RwLock<()>,
    files: Mutex<HashMap<(TenantId, String), Vec<u8>>>,
    requests: Mutex<Vec<BuildRequest>>,
    /// What was to be kept, each time.
    kept: Mutex<Vec<Vec<String>>>,
    running: AtomicUsize,
    pub most_running: AtomicUsize,
}

impl MemoryBuilds {
    pub fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            templates: Arc::new(Templates::open(folder.join("builds")).unwrap()),
            gate: RwLock::default(),
            files: Mutex::default(),
            requests: Mutex::default(),
            kept: Mutex::default(),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        })
    }

    pub fn requests(&self) -> Vec<BuildRequest> {
        self.requests.lock().clone()
    }

    pub fn kept(&self) -> Vec<Vec<String>> {
        self.kept.lock().clone()
    }

    pub fn files(&self, tenant: &TenantId, hash: &str) -> Option<Vec<u8>> {
        let files = self.files.lock();
        files.get(&(tenant.clone(), hash.to_owned())).cloned()
    }
}

fn run(request: &BuildRequest, log: &dyn BuildLog) -> Result<Template, BuildFailure> {
    let stage = request.stages.last().unwrap();
    let mut template = Template {
        id: request.template.clone(),
        build_id: request.build.clone(),
        aliases: request.aliases.clone(),
        overlays: Vec::new(),
        env: BTreeMap::new(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        limits: request.limits,
        start: request.start.clone().map(|start| StartCommand {
            start,
            ready: request.ready.clone().unwrap_or_default(),
        }),
        created_at: UnixMillis::now(),
    };
    if let Base::Template(below) = &stage.base {
        template.env = below.env.clone();
    }
    for (number, step) in (1..).zip(&stage.steps) {
        let (number, text) = (number.to_string(), step.args.join(" "));
        log.line(
            LogLevel::Info,
            Some(&number),
            &format!("{:?} {text}", step.kind),
        );
        match (step.kind, text.as_str()) {
            (StepKind::Run, "panic") => panic!("as the test wanted"),
            (StepKind::Run, "fail") => {
                let message = "failed to run command 'fail': exit status 1";
                return Err(BuildFailure::new(number, message));
            }
            (StepKind::Env, _) => {
                let pairs = step.args.chunks(2);
                let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone()));
                template.env.extend(pairs);
            }
            _ => {}
        }
    }
    Ok(template)
}

#[async_trait]
impl Builds for MemoryBuilds {
    async fn build(
        &self,
        request: BuildRequest,
        log: Arc<dyn BuildLog>,
        cancel: CancellationToken,
    ) -> Result<Arc<Template>, BuildFailure> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        self.requests.lock().push(request.clone());
        let base = match &request.stages.last().unwrap().base {
            Base::Image {
                reference,
                credentials,
            } => format!("{reference} {credentials:?}"),
            Base::Template(template) => template.build_id.clone(),
            base => format!("{base:?}"),
        };
        log.line(LogLevel::Info, Some("base"), &format!("[base] FROM {base}"));
        let ended = tokio::select! {
            () = cancel.cancelled() => Err(BuildFailure::new("base", "build was cancelled")),
            _open = self.gate.read() => run(&request, &*log),
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(self.templates.keep(ended?).unwrap())
    }

    async fn has_files(&self, tenant: &TenantId, hash: &str) -> bool {
        self.files(tenant, hash).is_some()
    }

    async fn receive_files(
        &self,
        tenant: &TenantId,
        hash: &str,
        mut upload: Upload,
    ) -> Result<(), FilesError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = upload.next().await {
            bytes.extend(chunk.map_err(FilesError::Cut)?);
            if bytes.len() as u64 > MOST_BYTES {
                return Err(FilesError::TooLarge { limit: MOST_BYTES });
            }
        }
        let key = (tenant.clone(), hash.to_owned());
        self.files.lock().insert(key, bytes);
        Ok(())
    }

    async fn collect_garbage(&self, keep: Vec<Arc<Template>>) {
        let mut kept: Vec<_> = keep.iter().map(|t| t.build_id.clone()).collect();
        kept.sort();
        self.kept.lock().push(kept);
    }

    async fn prune(&self, keep: Vec<Arc<Template>>) {
        self.collect_garbage(keep).await;
    }

    async fn disk_use(
        &self,
        _without: HashSet<String>,
        _keep: Vec<Arc<Template>>,
    ) -> std::io::Result<BuildDisk> {
        Ok(BuildDisk::default())
    }
}
