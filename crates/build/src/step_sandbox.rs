//! The sandbox in which a step runs.

use std::{path::Path, sync::Arc, time::Duration};

use soulbox_envd_client::{
    CommandSpec, EnvdClient, Error as EnvdError, NodeDial, OutputStream, ProcessExit,
};
use soulbox_runtime::{AddedLayer, BuildNode, Error as NodeError};
use soulbox_template::Template;
use soulbox_types::{
    Chain, EndReason, Limits, Purpose, SandboxId, SandboxSpec, Secret, UnixMillis,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    job::{BuildContext, Job, StageState},
    problem::{Problem, Result},
    state::STANDARD_PATH,
    step_log::StepLog,
};

/// How long a build waits for free capacity on the machine.
const CAPACITY_LIMIT: Duration = Duration::from_mins(10);
/// Copying a layer out of a sandbox: minutes for many gigabytes.
const EXPORT_LIMIT: Duration = Duration::from_mins(30);
/// How long a sandbox may outlive the limit of its step, should the server forget it.
const SPARE: Duration = Duration::from_hours(1);
const SCRIPT_LIMIT: Duration = Duration::from_mins(10);
/// Of what a script prints.
const MOST_TEXT: usize = 64 << 10;
const END_TRIES: u32 = 5;

/// Destroyed when dropped.
#[derive(Debug)]
pub(crate) struct StepSandbox {
    job: Job,
    id: SandboxId,
    /// The temporary build that it was started from.
    build: String,
    pub(crate) envd: EnvdClient,
    pub(crate) limits: Limits,
}

/// What a script of ours did.
#[derive(Debug)]
pub(crate) struct ScriptOutput {
    pub(crate) exit: ProcessExit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ScriptOutput {
    /// The last line of its output: mostly the reason.
    pub(crate) fn reason(&self) -> String {
        let last = |text: &str| text.trim().lines().next_back().map(str::to_owned);
        match last(&self.stderr).filter(|line| !line.is_empty()) {
            Some(line) => format!("{line} ({})", self.exit),
            None => self.exit.to_string(),
        }
    }
}

impl StepSandbox {
    pub(crate) async fn open(
        job: &Job,
        stage_state: &StageState,
        limits: Limits,
        step_log: &StepLog,
    ) -> Result<Self> {
        let most = job.context.config.most_layers;
        if stage_state.layer_count() >= most {
            return Err(Problem::user(format!(
                "the template would have more than {most} layers: join some RUN and COPY steps"
            )));
        }
        let template = Template {
            id: job.request.template.clone(),
            build_id: uuid::Uuid::new_v4().to_string(),
            aliases: Vec::new(),
            overlays: stage_state.overlays.clone(),
            // Commands get theirs one by one: what a user sets must not break our own.
            env: [("PATH".to_owned(), STANDARD_PATH.to_owned())].into(),
            default_user: "root".to_owned(),
            default_workdir: String::new(),
            limits,
            start: None,
            created_at: UnixMillis::now(),
        };
        let spec = spec(job, &template)?;
        let node: Arc<dyn BuildNode> = Arc::clone(&job.context.node);
        let dial = NodeDial::new(node, spec.id.clone());
        let sandbox = Self {
            job: job.clone(),
            id: spec.id.clone(),
            build: template.build_id.clone(),
            envd: EnvdClient::new(Arc::new(dial), &spec),
            limits,
        };
        job.context.templates.add_temporary(template);
        sandbox.create(spec, step_log).await?;
        Ok(sandbox)
    }

    async fn create(&self, spec: SandboxSpec, step_log: &StepLog) -> Result<()> {
        let start = Instant::now();
        let mut warned = false;
        loop {
            match self.job.context.node.create(spec.clone()).await {
                Ok(_) => return Ok(()),
                Err(NodeError::NoCapacity { what, retry_after }) => {
                    if start.elapsed() > CAPACITY_LIMIT {
                        return Err(Problem::user(format!(
                            "the server had no room for this build for {} minutes ({what}): \
                             build again later, or with less cpu and memory",
                            CAPACITY_LIMIT.as_secs() / 60
                        )));
                    }
                    if !warned {
                        step_log.warn(&format!("waiting for room on the server: {what}"));
                        warned = true;
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
    pub(crate) async fn script(&self, script: &str, args: &[&str]) -> Result<ScriptOutput> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut output = |stream: OutputStream, bytes: &[u8]| {
            let text = match stream {
                OutputStream::Stdout => &mut stdout,
                OutputStream::Stderr => &mut stderr,
            };
            let left = MOST_TEXT.saturating_sub(text.len());
            text.extend_from_slice(&bytes[..bytes.len().min(left)]);
        };
        let command = script_command(script, args);
        let exit = self.envd.run(&command, &mut output, SCRIPT_LIMIT).await;
        Ok(ScriptOutput {
            exit: exit.map_err(envd_problem)?,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    }

    /// As [`Self::script`], for one that takes long and prints much.
    pub(crate) async fn script_with_output(
        &self,
        script: &str,
        args: &[&str],
        output: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
        limit: Duration,
    ) -> Result<ProcessExit> {
        let command = script_command(script, args);
        let ran = self.envd.run(&command, output, limit).await;
        ran.map_err(envd_problem)
    }

    /// Whether something inside was killed for lack of memory.
    pub(crate) async fn ran_out_of_memory(&self) -> bool {
        let stats = self.job.context.node.stats(&self.id);
        matches!(timeout(Duration::from_secs(5), stats).await, Ok(Ok(stats)) if stats.oom_kills > 0)
    }

    /// Ends everything inside and writes what was added to a new directory.
    pub(crate) async fn export(self, target: &Path) -> Result<Vec<AddedLayer>> {
        match timeout(EXPORT_LIMIT, self.job.context.node.export(&self.id, target)).await {
            Ok(exported) => exported.map_err(not_exported),
            Err(_) => Err(Problem::user(format!(
                "copying what the step changed took longer than {} minutes",
                EXPORT_LIMIT.as_secs() / 60
            ))),
        }
    }
}

/// A full disk is shown to the user, who may need less of it, or know whom to ask.
fn not_exported(error: NodeError) -> Problem {
    match error {
        NodeError::NoCapacity { what, .. } => {
            Problem::user(format!("could not keep what the step changed: {what}"))
        }
        other => Problem::internal("keep what the step changed", other),
    }
}

/// For errors that are not about the request itself.
pub(crate) fn envd_problem(error: EnvdError) -> Problem {
    match error {
        EnvdError::TooSlow { limit, .. } => Problem::user(format!(
            "it took longer than {} s and was stopped",
            limit.as_secs()
        )),
        EnvdError::Refused { code, message } => {
            Problem::user(format!("command failed: {code}: {message}"))
        }
        EnvdError::Unreachable(_) | EnvdError::CutOff { .. } => Problem::user(
            "the build's sandbox ended in the middle of it: perhaps it ran out of memory",
        ),
        other => Problem::internal("talk to the build's sandbox", other),
    }
}

impl Drop for StepSandbox {
    fn drop(&mut self) {
        let context = Arc::clone(&self.job.context);
        let (id, build) = (self.id.clone(), std::mem::take(&mut self.build));
        if tokio::runtime::Handle::try_current().is_ok() {
            self.job.closing.spawn(end(context, id, build));
        }
    }
}

async fn end(context: Arc<BuildContext>, id: SandboxId, build: String) {
    for attempt in 1..=END_TRIES {
        match context.node.destroy(&id, EndReason::Killed).await {
            Ok(()) | Err(NodeError::SandboxNotFound(_)) => break,
            Err(error) => {
                tracing::warn!(sandbox_id = %id, error = %Chain(&error), attempt, "could not end a build's sandbox");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
    let forgotten = tokio::task::spawn_blocking(move || context.templates.forget(&build)).await;
    if let Ok(Err(error)) = forgotten {
        tracing::warn!(error = %Chain(&error), "could not forget a build's state between its steps");
    }
}

fn script_command(script: &str, args: &[&str]) -> CommandSpec {
    let mut all = vec!["-c".to_owned(), script.to_owned(), "soulbox".to_owned()];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    CommandSpec {
        program: "/bin/sh".to_owned(),
        args: all,
        user: "root".to_owned(),
        cwd: Some("/".to_owned()),
        ..CommandSpec::default()
    }
}

fn spec(job: &Job, template: &Template) -> Result<SandboxSpec> {
    let life = job.context.config.step_limit + SPARE;
    let plain = SandboxSpec::new(job.request.tenant.clone(), template.id.clone(), life);
    let id = format!("b{}", &plain.id.as_str()[1..])
        .parse()
        .map_err(|error| Problem::internal("name the build's sandbox", error))?;
    Ok(SandboxSpec {
        id,
        build: Some(template.build_id.clone()),
        purpose: Purpose::Build,
        limits: template.limits,
        access_token: Some(Secret::random()),
        traffic_token: Some(Secret::random()),
        ..plain
    })
}
