//! The last part: what every template has, its start command tried once, and its description kept.

mod startup;

use std::sync::Arc;

use soulbox_template::Template;
use soulbox_types::{StartCommand, UnixMillis};

use crate::{
    job::{Job, StageState},
    problem::{Doing, Problem, Result},
    scripts,
    state::DEFAULT_USER,
    step_log::StepLog,
    step_sandbox::StepSandbox,
};

/// E2B's, for a start command without a ready command.
const DEFAULT_READY: &str = "sleep 20";

pub(crate) async fn finalize(job: &Job, mut stage_state: StageState) -> Result<Arc<Template>> {
    let step_log = job.step_log("finalize", "finalize");
    step_log.info("writing the configuration");
    configure(job, &mut stage_state, &step_log).await?;
    let start = start_command(job, &stage_state);
    if let Some(command) = &start {
        startup::check(job, &stage_state, command, &step_log).await?;
    }
    let request = &job.request;
    let template = Template {
        id: request.template.clone(),
        build_id: request.build.clone(),
        aliases: request.aliases.clone(),
        overlays: stage_state.overlays.clone(),
        env: stage_state.state.command_env(),
        default_user: stage_state.state.user.clone(),
        default_workdir: stage_state.state.workdir.clone().unwrap_or_default(),
        limits: request.limits,
        start,
        created_at: UnixMillis::now(),
    };
    let templates = Arc::clone(&job.context.templates);
    let kept = tokio::task::spawn_blocking(move || templates.keep(template))
        .await
        .map_err(|error| Problem::internal("keep the template", error))?
        .map_err(|error| Problem::internal("keep the template", error))?;
    step_log.info("the template is ready");
    Ok(kept)
}

/// A layer of the build's own: it names the build.
async fn configure(job: &Job, stage_state: &mut StageState, step_log: &StepLog) -> Result<()> {
    let request = &job.request;
    let key = stage_state.key.then(&["finalize", &request.build]);
    let steps = &job.context.steps;
    let _one_at_a_time = steps.lock(&key).await;
    let sandbox = StepSandbox::open(job, stage_state, request.limits, step_log).await?;
    let args = [request.template.as_str(), &request.build, DEFAULT_USER];
    let ran = sandbox.script(scripts::FINALIZE, &args).await?;
    if !ran.exit.is_success() {
        return Err(Problem::user(format!(
            "configuration script failed: {}",
            ran.reason()
        )));
    }
    let draft = steps.begin(&key);
    let added = sandbox.export(draft.path()).await?;
    let state = stage_state.state.clone();
    let done = steps
        .finish(draft, state, added, "FINALIZE".to_owned(), true)
        .await
        .doing("keep the configuration")?;
    stage_state.advance(&key, done);
    Ok(())
}

/// What was asked for, or what the base template has.
fn start_command(job: &Job, stage_state: &StageState) -> Option<StartCommand> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let inherited = stage_state.start.clone();
    let (old_start, old_ready) =
        inherited.map_or((None, None), |old| (Some(old.start), Some(old.ready)));
    let start = given(&job.request.start)
        .or(given(&old_start))
        .unwrap_or_default();
    let ready = given(&job.request.ready).or(given(&old_ready));
    let ready = match ready {
        Some(ready) => ready,
        None if start.is_empty() => return None,
        None => DEFAULT_READY.to_owned(),
    };
    Some(StartCommand { start, ready })
}
