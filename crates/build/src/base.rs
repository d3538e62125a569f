//! What a stage starts from.

mod aside;
pub(crate) mod debian;
mod image;
mod provision;

use crate::{
    Base,
    job::{Ground, Job},
    journal::Journal,
    key::Key,
    problem::{Problem, Result},
    step::Stages,
};

pub(crate) use image::as_it_is as image_as_it_is;

pub(crate) async fn ground(
    job: &Job,
    base: &Base,
    stages: &Stages,
    forced: bool,
    journal: &Journal,
) -> Result<Ground> {
    let tenant = &job.request.tenant;
    match base {
        Base::Template(template) => {
            let key = Key::base(tenant, &["template", &template.build_id]);
            let alias = template.aliases.first().map(String::as_str);
            let name = alias.unwrap_or(template.id.as_str());
            journal.begins(&format!("FROM {name}"), key.short(), !forced);
            Ok(Ground::of_template(key, template, &job.shop.leases))
        }
        Base::Stage(index) => {
            let earlier = stages.get(*index).and_then(Option::as_ref);
            let ground = earlier.cloned().ok_or_else(|| {
                Problem::told(format!("there is no stage {index} before this one"))
            })?;
            journal.begins(&format!("FROM stage {index}"), ground.key.short(), true);
            Ok(ground)
        }
        Base::Image {
            reference,
            credentials,
        } => {
            let image = image::pull(job, reference, credentials.as_ref(), forced, journal).await?;
            provision::provision(job, reference, image, forced, journal).await
        }
        Base::Archive { hash } => {
            let image = image::import_upload(job, hash, journal).await?;
            provision::provision(job, "an uploaded archive", image, forced, journal).await
        }
        Base::Debian { packages } => {
            let image = debian::make(job, packages, forced, journal).await?;
            provision::provision(job, "debian", image, forced, journal).await
        }
    }
}
