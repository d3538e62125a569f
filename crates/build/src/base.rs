//! What a stage starts from.

pub(crate) mod debian;
mod image;
mod provision;
mod script_log;

use crate::{
    Base,
    job::{Job, StageState},
    key::Key,
    problem::{Problem, Result},
    step::Stages,
    step_log::StepLog,
};

pub(crate) use image::unmodified as unmodified_image;

pub(crate) async fn prepare(
    job: &Job,
    base: &Base,
    stages: &Stages,
    forced: bool,
    step_log: &StepLog,
) -> Result<StageState> {
    let tenant = &job.request.tenant;
    match base {
        Base::Template(template) => {
            let key = Key::base(tenant, &["template", &template.build_id]);
            let alias = template.aliases.first().map(String::as_str);
            let name = alias.unwrap_or(template.id.as_str());
            step_log.begins(&format!("FROM {name}"), key.short(), !forced);
            Ok(StageState::of_template(key, template, &job.context.leases))
        }
        Base::Stage(index) => {
            let earlier = stages.get(*index).and_then(Option::as_ref);
            let stage_state = earlier.cloned().ok_or_else(|| {
                Problem::user(format!("there is no stage {index} before this one"))
            })?;
            step_log.begins(
                &format!("FROM stage {index}"),
                stage_state.key.short(),
                true,
            );
            Ok(stage_state)
        }
        Base::Image {
            reference,
            credentials,
        } => {
            let image = image::pull(job, reference, credentials.as_ref(), forced, step_log).await?;
            provision::provision(job, reference, image, forced, step_log).await
        }
        Base::Archive { hash } => {
            let image = image::import_upload(job, hash, step_log).await?;
            provision::provision(job, "an uploaded archive", image, forced, step_log).await
        }
        Base::Debian { packages } => {
            let image = debian::make(job, packages, forced, step_log).await?;
            provision::provision(job, "debian", image, forced, step_log).await
        }
    }
}
