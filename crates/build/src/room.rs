//! A sandbox in which a step runs.

use std::{path::Path, sync::Arc, time::Duration};

use soulbox_guest::{Error as GuestError, Guest, GuestCommand, GuestExit, NodeDial, OutputStream};
use soulbox_runtime::{AddedLayer, Error as NodeError};
use soulbox_template::Template;
use soulbox_types::{
    Chain, EndReason, Lifecycle, Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, Secret,
    Tier, UnixMillis,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    job::{Ground, Job, Workshop},
    journal::Journal,
    problem::{Problem, Result},
    state::STANDARD_PATH,
};

/// How long a build waits for room on the machine.
const ROOM_LIMIT: Duration = Duration::from_mins(10);
/// Copying a layer out of a sandbox: minutes for many gigabytes.
const EXPORT_LIMIT: Duration = Duration::from_mins(30);
/// How long a sandbox may outlive the limit of its step, should the server forget it.
const SPARE: Duration = Duration::from_hours(1);
const SCRIPT_LIMIT: Duration = Duration::from_mins(10);
/// Of what a script prints.
const MOST_TEXT: usize = 64 << 10;
const END_TRIES: u32 = 5;

/// Ends with this, whatever happens.
#[derive(Debug)]
pub(crate) struct Room {
    job: Job,
    id: SandboxId,
    /// The build that was lent for it.
    build: String,
    pub(crate) guest: Guest,
    pub(crate) limits: Limits,
}

/// What a script of ours did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: GuestExit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The last thing that it had to say: mostly the reason.
    pub(crate) fn reason(&self) -> String {
        let last = |text: &str| text.trim().lines().next_back().map(str::to_owned);
        match last(&self.stderr).filter(|line| !line.is_empty()) {
            Some(line) => format!("{line} ({})", self.exit),
            None => self.exit.to_string(),
        }
    }
}

impl Room {
    pub(crate) async fn open(
        job: &Job,
        ground: &Ground,
        limits: Limits,
        journal: &Journal,
    ) -> Result<Self> {
        let most = job.shop.config.most_layers;
        if ground.height() >= most {
            return Err(Problem::told(format!(
                "the template would have more than {most} layers: join some RUN and COPY steps"
            )));
        }
        let template = Template {
            id: job.request.template.clone(),
            build_id: uuid::Uuid::new_v4().to_string(),
            aliases: Vec::new(),
            overlays: ground.overlays.clone(),
            // Commands get theirs one by one: what a user sets must not break our own.
            env: [("PATH".to_owned(), STANDARD_PATH.to_owned())].into(),
            default_user: "root".to_owned(),
            default_workdir: String::new(),
            limits,
            start: None,
            created_at: UnixMillis::now(),
        };
        let spec = spec(job, &template)?;
        let dial = NodeDial::new(Arc::clone(&job.shop.node), spec.id.clone());
        let room = Self {
            job: job.clone(),
            id: spec.id.clone(),
            build: template.build_id.clone(),
            guest: Guest::new(Arc::new(dial), &spec),
            limits,
        };
        job.shop.templates.lend(template);
        room.create(spec, journal).await?;
        Ok(room)
    }

    async fn create(&self, spec: SandboxSpec, journal: &Journal) -> Result<()> {
        let start = Instant::now();
        let mut told = false;
        loop {
            match self.job.shop.node.create(spec.clone()).await {
                Ok(_) => return Ok(()),
                Err(NodeError::NoCapacity { what, retry_after }) => {
                    if start.elapsed() > ROOM_LIMIT {
                        return Err(Problem::told(format!(
                            "the server had no room for this build for {} minutes ({what}): \
                             build again later, or with less cpu and memory",
                            ROOM_LIMIT.as_secs() / 60
                        )));
                    }
                    if !told {
                        journal.warn(&format!("waiting for room on the server: {what}"));
                        told = true;
                    }
                    let least = Duration::from_millis(200);
                    sleep(retry_after.clamp(least, Duration::from_secs(5))).await;
                }
                Err(error) => {
                    return Err(Problem::internal("start a sandbox for the build", error));
                }
            }
        }
    }

    /// Runs a POSIX shell script of ours as root, with arguments.
    pub(crate) async fn script(&self, script: &str, args: &[&str]) -> Result<Ran> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut output = |stream: OutputStream, bytes: &[u8]| {
            let text = match stream {
                OutputStream::Stdout => &mut stdout,
                OutputStream::Stderr => &mut stderr,
            };
            let room = MOST_TEXT.saturating_sub(text.len());
            text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        let command = script_command(script, args);
        let exit = self.guest.run(&command, &mut output, SCRIPT_LIMIT).await;
        Ok(Ran {
            exit: exit.map_err(broken)?,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    }

    /// As [`Self::script`], for one that takes long and has much to say.
    pub(crate) async fn script_to(
        &self,
        script: &str,
        args: &[&str],
        output: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
        limit: Duration,
    ) -> Result<GuestExit> {
        let command = script_command(script, args);
        let ran = self.guest.run(&command, output, limit).await;
        ran.map_err(broken)
    }

    /// Whether something inside was killed for lack of memory.
    pub(crate) async fn ran_out_of_memory(&self) -> bool {
        let stats = self.job.shop.node.stats(&self.id);
        matches!(timeout(Duration::from_secs(5), stats).await, Ok(Ok(stats)) if stats.oom_kills > 0)
    }

    /// Ends everything inside and writes what was added to a new directory.
    pub(crate) async fn export(self, target: &Path) -> Result<Vec<AddedLayer>> {
        match timeout(EXPORT_LIMIT, self.job.shop.node.export(&self.id, target)).await {
            Ok(exported) => exported.map_err(not_exported),
            Err(_) => Err(Problem::told(format!(
                "copying what the step changed took longer than {} minutes",
                EXPORT_LIMIT.as_secs() / 60
            ))),
        }
    }
}

/// A full disk is told: the user may need less of it, or know whom to ask.
fn not_exported(error: NodeError) -> Problem {
    match error {
        NodeError::NoCapacity { what, .. } => {
            Problem::told(format!("could not keep what the step changed: {what}"))
        }
        other => Problem::internal("keep what the step changed", other),
    }
}

/// For errors that are not about what was asked.
pub(crate) fn broken(error: GuestError) -> Problem {
    match error {
        GuestError::TooSlow { limit, .. } => Problem::told(format!(
            "it took longer than {} s and was stopped",
            limit.as_secs()
        )),
        GuestError::Refused { code, message } => {
            Problem::told(format!("command failed: {code}: {message}"))
        }
        GuestError::Unreachable(_) | GuestError::CutOff { .. } => Problem::told(
            "the build's sandbox ended in the middle of it: perhaps it ran out of memory",
        ),
        other => Problem::internal("talk to the build's sandbox", other),
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let shop = Arc::clone(&self.job.shop);
        let (id, build) = (self.id.clone(), std::mem::take(&mut self.build));
        if tokio::runtime::Handle::try_current().is_ok() {
            self.job.closing.spawn(end(shop, id, build));
        }
    }
}

async fn end(shop: Arc<Workshop>, id: SandboxId, build: String) {
    for attempt in 1..=END_TRIES {
        match shop.node.destroy(&id, EndReason::Killed).await {
            Ok(()) | Err(NodeError::SandboxNotFound(_)) => break,
            Err(error) => {
                tracing::warn!(sandbox = %id, error = %Chain(&error), attempt, "could not end a build's sandbox");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
    let forgotten = tokio::task::spawn_blocking(move || shop.templates.forget(&build)).await;
    if let Ok(Err(error)) = forgotten {
        tracing::warn!(error = %Chain(&error), "could not forget a build's state between its steps");
    }
}

fn script_command(script: &str, args: &[&str]) -> GuestCommand {
    let mut all = vec!["-c".to_owned(), script.to_owned(), "soulbox".to_owned()];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    GuestCommand {
        program: "/bin/sh".to_owned(),
        args: all,
        user: "root".to_owned(),
        cwd: Some("/".to_owned()),
        ..GuestCommand::default()
    }
}

fn spec(job: &Job, template: &Template) -> Result<SandboxSpec> {
    let now = UnixMillis::now();
    let random = SandboxId::random();
    let id = format!("b{}", &random.as_str()[1..])
        .parse()
        .map_err(|error| Problem::internal("name the build's sandbox", error))?;
    Ok(SandboxSpec {
        id,
        tenant: job.request.tenant.clone(),
        tier: Tier::default(),
        template: template.id.clone(),
        build: Some(template.build_id.clone()),
        purpose: Purpose::Build,
        snapshot: None,
        volumes: Vec::new(),
        alias: None,
        limits: template.limits,
        env: [].into(),
        metadata: [].into(),
        network: NetworkPolicy::default(),
        lifecycle: Lifecycle::default(),
        access_token: Some(Secret::random()),
        traffic_token: Some(Secret::random()),
        node_token: Secret::random(),
        created_at: now,
        deadline: now.plus(job.shop.config.step_limit + SPARE),
    })
}
