//! One step of a stage: from the cache, or run in a sandbox.

mod copy;
mod env;
mod run;
mod user;
mod workdir;

use soulbox_guest::GuestCommand;

use crate::{
    CopySource, Step, StepKind,
    job::{Ground, Job},
    journal::Journal,
    key::Key,
    problem::{Doing, Problem, Result},
    room::Room,
    scripts,
    state::State,
};

/// Where the earlier stages of the build ended, by their index.
pub(crate) type Stages = [Option<Ground>];

/// Runs the steps of one stage, one after the other.
pub(crate) struct Steps<'a> {
    pub(crate) job: &'a Job,
    pub(crate) stages: &'a Stages,
    pub(crate) ground: Ground,
    /// From here on nothing is taken from the cache.
    pub(crate) forced: bool,
    /// Made for an earlier step that changed nothing in it.
    room: Option<Room>,
}

/// How a step ended.
struct Outcome {
    state: State,
    /// The sandbox in which it ran.
    room: Option<Room>,
    /// There are changes in it to be kept.
    changed: bool,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(job: &'a Job, stages: &'a Stages, ground: Ground, forced: bool) -> Self {
        Self {
            job,
            stages,
            ground,
            forced,
            room: None,
        }
    }

    pub(crate) async fn take(&mut self, step: &Step, journal: &Journal) -> Result<()> {
        self.forced |= step.force;
        let label = label(step);
        let source = self.source(step, journal).await?;
        let source_key = source.as_ref().map_or("", |ground| ground.key.as_str());
        let key = self.ground.key.then(&parts(step, source_key));
        let steps = &self.job.shop.steps;
        let _one_at_a_time = steps.lock(&key).await;
        if !self.forced
            && let Some(done) = steps.find(&key).await
        {
            journal.begins(&label, key.short(), true);
            self.advance(&key, done);
            return Ok(());
        }
        journal.begins(&label, key.short(), false);
        let outcome = self.run(step, source.as_ref(), journal).await?;
        self.keep(&key, outcome, label).await
    }

    async fn run(
        &mut self,
        step: &Step,
        source: Option<&Ground>,
        journal: &Journal,
    ) -> Result<Outcome> {
        let mut state = self.ground.state.clone();
        if step.kind == StepKind::Env {
            env::apply(&mut state, &step.args)?;
            return Ok(Outcome {
                state,
                room: self.room.take(),
                changed: false,
            });
        }
        let room = self.room(journal).await?;
        match step.kind {
            StepKind::Run => run::run(self.job, room, state, &step.args, journal).await,
            StepKind::Copy => copy::run(self.job, room, state, step, source, journal).await,
            StepKind::Workdir => workdir::run(room, state, &step.args).await,
            StepKind::User => user::run(room, state, &step.args).await,
            StepKind::Env => Err(Problem::told("ENV changes no files")),
        }
    }

    async fn room(&mut self, journal: &Journal) -> Result<Room> {
        if let Some(room) = self.room.take() {
            return Ok(room);
        }
        let limits = self.job.request.limits;
        Room::open(self.job, &self.ground, limits, journal).await
    }

    async fn keep(&mut self, key: &Key, outcome: Outcome, label: String) -> Result<()> {
        let steps = &self.job.shop.steps;
        let draft = steps.begin(key);
        let added = match outcome.room {
            Some(room) if outcome.changed => room.export(draft.path()).await?,
            unchanged => {
                self.room = unchanged;
                Vec::new()
            }
        };
        let done = steps
            .finish(draft, outcome.state, added, label, false)
            .await;
        self.advance(key, done.doing("keep what the step changed")?);
        Ok(())
    }

    fn advance(&mut self, key: &Key, done: crate::steps::Done) {
        if !done.layers.is_empty() {
            // It stands on fewer layers than the next step.
            self.room = None;
        }
        self.ground.advance(key, done);
    }

    /// From what a `COPY --from` copies.
    async fn source(&self, step: &Step, journal: &Journal) -> Result<Option<Ground>> {
        match &step.from {
            None => Ok(None),
            Some(CopySource::Stage(index)) => {
                let ground = self.stages.get(*index).and_then(Option::as_ref);
                ground.cloned().map(Some).ok_or_else(|| {
                    Problem::told(format!(
                        "there is no stage {index} before this one to copy from"
                    ))
                })
            }
            Some(CopySource::Image(reference)) => {
                let ground = crate::base::image_as_it_is(self.job, reference, journal).await?;
                Ok(Some(ground))
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
pub(crate) fn user_command(state: &State, command: &str, user: &str) -> GuestCommand {
    GuestCommand {
        program: "/bin/sh".to_owned(),
        args: ["-c", scripts::LOGIN_SHELL, "soulbox", command]
            .map(str::to_owned)
            .to_vec(),
        user: user.to_owned(),
        cwd: state.workdir.clone(),
        env: state.command_env(),
    }
}
