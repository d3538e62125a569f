//! One step of a stage: from the cache, or run in a sandbox.

mod copy;
mod env;
mod run;
mod user;
mod workdir;

use soulbox_envd_client::CommandSpec;

use crate::{
    CopySource, Step, StepKind,
    job::{Job, StageState},
    key::Key,
    problem::{Doing, Problem, Result},
    scripts,
    state::State,
    step_log::StepLog,
    step_sandbox::StepSandbox,
};

/// Where the earlier stages of the build ended, by their index.
pub(crate) type Stages = [Option<StageState>];

/// Runs the steps of one stage, one after the other.
pub(crate) struct StageRunner<'a> {
    pub(crate) job: &'a Job,
    pub(crate) stages: &'a Stages,
    pub(crate) stage_state: StageState,
    /// From here on nothing is taken from the cache.
    pub(crate) forced: bool,
    /// Made for an earlier step that changed nothing in it.
    sandbox: Option<StepSandbox>,
}

/// How a step ended.
struct Outcome {
    state: State,
    /// The sandbox in which it ran.
    sandbox: Option<StepSandbox>,
    /// There are changes in it to be kept.
    changed: bool,
}

impl<'a> StageRunner<'a> {
    pub(crate) fn new(
        job: &'a Job,
        stages: &'a Stages,
        stage_state: StageState,
        forced: bool,
    ) -> Self {
        Self {
            job,
            stages,
            stage_state,
            forced,
            sandbox: None,
        }
    }

    /// For steps that are run at the same time as others, from the same files.
    pub(crate) fn beside(&self) -> Self {
        let stage_state = self.stage_state.clone();
        Self::new(self.job, self.stages, stage_state, self.forced)
    }

    /// What those made counts from now on.
    pub(crate) fn join(&mut self, lanes: Vec<StageState>) {
        self.stage_state = self.stage_state.joined(lanes);
        self.sandbox = None;
    }

    pub(crate) async fn apply(&mut self, step: &Step, step_log: &StepLog) -> Result<()> {
        self.forced |= step.force;
        let label = label(step);
        let source = self.source(step, step_log).await?;
        let source_key = source
            .as_ref()
            .map_or("", |stage_state| stage_state.key.as_str());
        let key = self.stage_state.key.then(&parts(step, source_key));
        let steps = &self.job.context.steps;
        let _one_at_a_time = steps.lock(&key).await;
        if !self.forced
            && let Some(done) = steps.find(&key).await
        {
            step_log.begins(&label, key.short(), true);
            self.advance(&key, done);
            return Ok(());
        }
        step_log.begins(&label, key.short(), false);
        let outcome = self.run(step, source.as_ref(), step_log).await?;
        self.keep(&key, outcome, label).await
    }

    async fn run(
        &mut self,
        step: &Step,
        source: Option<&StageState>,
        step_log: &StepLog,
    ) -> Result<Outcome> {
        let mut state = self.stage_state.state.clone();
        if step.kind == StepKind::Env {
            env::apply(&mut state, &step.args)?;
            return Ok(Outcome {
                state,
                sandbox: self.sandbox.take(),
                changed: false,
            });
        }
        let sandbox = self.sandbox(step_log).await?;
        match step.kind {
            StepKind::Run => run::run(self.job, sandbox, state, &step.args, step_log).await,
            StepKind::Copy => copy::run(self.job, sandbox, state, step, source, step_log).await,
            StepKind::Workdir => workdir::run(sandbox, state, &step.args).await,
            StepKind::User => user::run(sandbox, state, &step.args).await,
            StepKind::Env => Err(Problem::user("ENV changes no files")),
        }
    }

    async fn sandbox(&mut self, step_log: &StepLog) -> Result<StepSandbox> {
        if let Some(sandbox) = self.sandbox.take() {
            return Ok(sandbox);
        }
        let limits = self.job.request.limits;
        StepSandbox::open(self.job, &self.stage_state, limits, step_log).await
    }

    async fn keep(&mut self, key: &Key, outcome: Outcome, label: String) -> Result<()> {
        let steps = &self.job.context.steps;
        let draft = steps.begin(key);
        let added = match outcome.sandbox {
            Some(sandbox) if outcome.changed => sandbox.export(draft.path()).await?,
            unchanged => {
                self.sandbox = unchanged;
                Vec::new()
            }
        };
        let done = steps
            .finish(draft, outcome.state, added, label, false)
            .await;
        self.advance(key, done.doing("keep what the step changed")?);
        Ok(())
    }

    fn advance(&mut self, key: &Key, done: crate::step_cache::StepResult) {
        if !done.layers.is_empty() {
            // It has fewer layers than the next step needs.
            self.sandbox = None;
        }
        self.stage_state.advance(key, done);
    }

    /// From what a `COPY --from` copies.
    async fn source(&self, step: &Step, step_log: &StepLog) -> Result<Option<StageState>> {
        match &step.from {
            None => Ok(None),
            Some(CopySource::Stage(index)) => {
                let stage_state = self.stages.get(*index).and_then(Option::as_ref);
                stage_state.cloned().map(Some).ok_or_else(|| {
                    Problem::user(format!(
                        "there is no stage {index} before this one to copy from"
                    ))
                })
            }
            Some(CopySource::Image(reference)) => {
                let stage_state =
                    crate::base::unmodified_image(self.job, reference, step_log).await?;
                Ok(Some(stage_state))
            }
        }
    }
}

/// What a step depends on, besides what came before.
fn parts<'a>(step: &'a Step, source: &'a str) -> Vec<&'a str> {
    let mut parts = vec![
        name(step.kind),
        step.files_hash.as_deref().unwrap_or(""),
        source,
    ];
    parts.extend(step.args.iter().map(String::as_str));
    parts
}

fn name(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Copy => "COPY",
        StepKind::Run => "RUN",
        StepKind::Env => "ENV",
        StepKind::Workdir => "WORKDIR",
        StepKind::User => "USER",
    }
}

/// For the log, as somebody would write it.
fn label(step: &Step) -> String {
    let args = match step.kind {
        // Values of variables are not for a log: people put keys there.
        StepKind::Env => {
            let names = step.args.iter().step_by(2).map(String::as_str);
            names.collect::<Vec<_>>().join(" ")
        }
        StepKind::Run => step.args.first().cloned().unwrap_or_default(),
        _ => {
            let given = step.args.iter().filter(|arg| !arg.is_empty());
            given.map(String::as_str).collect::<Vec<_>>().join(" ")
        }
    };
    format!("{} {args}", name(step.kind))
}

/// What a user wrote, by a login shell.
pub(crate) fn user_command(state: &State, command: &str, user: &str) -> CommandSpec {
    CommandSpec {
        program: "/bin/sh".to_owned(),
        args: ["-c", scripts::LOGIN_SHELL, "soulbox", command]
            .map(str::to_owned)
            .to_vec(),
        user: user.to_owned(),
        cwd: state.workdir.clone(),
        env: state.command_env(),
    }
}
