//! The last part: what every template has, its start command tried once, and its description kept.

mod startup;

use std::sync::Arc;

use soulbox_template::Template;
use soulbox_types::{StartCommand, UnixMillis};

use crate::{
    job::{Ground, Job},
    journal::Journal,
    problem::{Doing, Problem, Result},
    room::Room,
    scripts,
    state::DEFAULT_USER,
};

/// E2B's, for a start command without a ready command.
const DEFAULT_READY: &str = "sleep 20";

pub(crate) async fn finalize(job: &Job, mut ground: Ground) -> Result<Arc<Template>> {
    let journal = job.journal("finalize", "finalize");
    journal.info("writing the configuration");
    configure(job, &mut ground, &journal).await?;
    let start = start_command(job, &ground);
    if let Some(command) = &start {
        startup::check(job, &ground, command, &journal).await?;
    }
    let request = &job.request;
    let template = Template {
        id: request.template.clone(),
        build_id: request.build.clone(),
        aliases: request.aliases.clone(),
        overlays: ground.overlays.clone(),
        env: ground.state.command_env(),
        default_user: ground.state.user.clone(),
        default_workdir: ground.state.workdir.clone().unwrap_or_default(),
        limits: request.limits,
        start,
        created_at: UnixMillis::now(),
    };
    let templates = Arc::clone(&job.shop.templates);
    let kept = tokio::task::spawn_blocking(move || templates.keep(template))
        .await
        .map_err(|error| Problem::internal("keep the template", error))?
        .map_err(|error| Problem::internal("keep the template", error))?;
    journal.info("the template is ready");
    Ok(kept)
}

/// A layer of the build's own: it names the build.
async fn configure(job: &Job, ground: &mut Ground, journal: &Journal) -> Result<()> {
    let request = &job.request;
    let key = ground.key.then(&["finalize", &request.build]);
    let steps = &job.shop.steps;
    let _one_at_a_time = steps.lock(&key).await;
    let room = Room::open(job, ground, request.limits, journal).await?;
    let args = [request.template.as_str(), &request.build, DEFAULT_USER];
    let ran = room.script(scripts::FINALIZE, &args).await?;
    if !ran.exit.is_success() {
        return Err(Problem::told(format!(
            "configuration script failed: {}",
            ran.reason()
        )));
    }
    let draft = steps.begin(&key);
    let added = room.export(draft.path()).await?;
    let state = ground.state.clone();
    let done = steps
        .finish(draft, state, added, "FINALIZE".to_owned(), true)
        .await
        .doing("keep the configuration")?;
    ground.advance(&key, done);
    Ok(())
}

/// What was asked for, or what the base template has.
fn start_command(job: &Job, ground: &Ground) -> Option<StartCommand> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let inherited = ground.start.clone();
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
