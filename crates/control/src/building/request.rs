//! Asking for a build: a template when there is none of that name, and a place for its build.

use std::sync::Arc;

use soulbox_store::{BuildReason, BuildRow, BuildStatus, TemplateRow};
use soulbox_types::{
    Limits, TemplateId, UnixMillis,
    limits::{MAX_CPUS, MIN_DISK_MIB, MIN_MEMORY_MIB},
};
use tracing::Instrument;
use uuid::Uuid;

use super::{
    scheduler::{BuildScheduler, CANCELLED},
    templates::Built,
};
use crate::{
    Control, Error, Reference, Resources, Result, Tenant, committed::follow,
    reference::DEFAULT_TAG, snapshot::not_a_uuid,
};

/// E2B's, for a template that names no others.
const DEFAULT_CPU_MILLIS: u32 = 2000;
const DEFAULT_MEMORY_MIB: u32 = 1024;
/// Builds that were asked for and never started.
const MOST_WAITING: usize = 100;
const MOST_TEMPLATES: usize = 10_000;
const MOST_TAGS: usize = 100;

/// What a client tells before it uploads files.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest {
    /// With a tag or without.
    pub name: String,
    pub tags: Vec<String>,
    pub resources: Resources,
}

/// The answer.
#[derive(Debug, Clone)]
pub struct Asked {
    pub template: TemplateId,
    /// A UUID.
    pub build: String,
    /// Without the namespace.
    pub name: String,
    pub tags: Vec<String>,
    pub public: bool,
}

impl Control {
    /// Another build of the tenant's template of this name, which is made when it is absent.
    /// Earlier builds of the same tags that were never started are cancelled.
    pub async fn request_build(
        self: &Arc<Self>,
        tenant: &Tenant,
        request: BuildRequest,
    ) -> Result<Asked> {
        let scheduler = Arc::clone(self.scheduler()?);
        let reference = own_reference(tenant, &request.name)?;
        let tags = tags_of(&reference, &request.tags)?;
        let limits = self.build_limits(&scheduler, request.resources)?;
        let (control, tenant) = (Arc::clone(self), tenant.clone());
        let work = async move {
            let _writing = control.snapshots.writing.lock().await;
            let template = control.template_to_build(&tenant, &reference.name)?;
            control.check_build_limit(&scheduler, &tenant)?;
            if control.templates.count(&tenant.id, BuildStatus::Waiting) >= MOST_WAITING {
                return Err(Error::TooManyBuilds(MOST_WAITING));
            }
            control.supersede(&template.id, &tags).await?;
            let build = BuildRow {
                id: Uuid::now_v7().to_string(),
                template: template.id.clone(),
                status: BuildStatus::Waiting,
                tags,
                limits,
                tier: None,
                version: None,
                reason: None,
                created_at: UnixMillis::now(),
                started_at: None,
                finished_at: None,
                removed: false,
            };
            let written = control.store.insert_build(&template, &build).await;
            follow(written, || control.templates.add(&template, build.clone()))?;
            tracing::info!(template = %template.id, build = build.id, "build asked for");
            Ok(Asked {
                template: template.id,
                build: build.id,
                name: template.name.unwrap_or_default(),
                tags: build.tags,
                public: template.public,
            })
        };
        self.finish(work.in_current_span()).await
    }

    pub(crate) fn scheduler(&self) -> Result<&Arc<BuildScheduler>> {
        self.scheduler.as_ref().ok_or(Error::NoBuilder)
    }

    /// The row of the tenant's template, known or new.
    fn template_to_build(&self, tenant: &Tenant, name: &str) -> Result<TemplateRow> {
        if let Some(own) = self.templates.by_name(&tenant.id, name) {
            return Ok(own.row);
        }
        if self.snapshots.row_named(&tenant.id, name).is_some() {
            return Err(Error::NameTaken {
                name: name.to_owned(),
                by: "a snapshot of yours",
            });
        }
        match self.templates.by_id(name) {
            Some(own) if own.row.tenant == tenant.id => return Ok(own.row),
            Some(_) => return Err(taken_as_id(name)),
            None if self.catalogue.by_id(name).is_some()
                || self.snapshots.by_id(name).is_some() =>
            {
                return Err(taken_as_id(name));
            }
            None => {}
        }
        if self.templates.of(&tenant.id).len() >= MOST_TEMPLATES {
            return Err(Error::Invalid(format!(
                "a team has at most {MOST_TEMPLATES} templates: delete some"
            )));
        }
        Ok(TemplateRow {
            id: TemplateId::random(),
            tenant: tenant.id.clone(),
            name: Some(name.to_owned()),
            global_name: None,
            public: false,
            created_at: UnixMillis::now(),
            deleted_at: None,
        })
    }

    pub(crate) fn check_build_limit(
        &self,
        scheduler: &BuildScheduler,
        tenant: &Tenant,
    ) -> Result<()> {
        let limit = scheduler.config.max_per_tenant;
        let building = self.templates.count(&tenant.id, BuildStatus::Building);
        if building >= limit {
            return Err(Error::TooManyBuilds(limit));
        }
        Ok(())
    }

    /// With the catalog's lock held.
    async fn supersede(&self, template: &TemplateId, tags: &[String]) -> Result<()> {
        let Some(built) = self.templates.by_id(template.as_str()) else {
            return Ok(());
        };
        let same = |build: &&BuildRow| {
            build.status == BuildStatus::Waiting && build.tags.iter().any(|tag| tags.contains(tag))
        };
        for build in built.builds.iter().filter(same) {
            self.cancel_waiting(build, "a newer build of the same tags was asked for")
                .await?;
        }
        Ok(())
    }

    /// With the catalog's lock held.
    pub(crate) async fn cancel_waiting(&self, build: &BuildRow, why: &str) -> Result<()> {
        self.end_build(build, format!("{CANCELLED}: {why}")).await
    }

    /// Of one that does not run.
    pub(crate) async fn end_build(&self, build: &BuildRow, message: String) -> Result<()> {
        let reason = BuildReason {
            step: "base".to_owned(),
            message,
        };
        let at = UnixMillis::now();
        self.store
            .finish_build(&build.id, Some(&reason), &[], at)
            .await?;
        self.templates.change(&build.template, &build.id, |row| {
            row.status = BuildStatus::Error;
            row.reason = Some(reason);
            row.finished_at = Some(at);
        });
        Ok(())
    }

    fn build_limits(&self, scheduler: &BuildScheduler, definition: Resources) -> Result<Limits> {
        let defaults = Limits {
            cpu_millis: DEFAULT_CPU_MILLIS,
            memory_mib: DEFAULT_MEMORY_MIB,
            ..self.config.default_limits
        };
        check_limits(definition, scheduler.config.max_limits)?;
        Ok(definition.over(defaults, self.config.default_limits))
    }
}

/// E2B's rules for what a template names.
fn check_limits(definition: Resources, most: Limits) -> Result<()> {
    let no = |message: String| Err(Error::Invalid(message));
    let most_cpus = (most.cpu_millis / 1000).min(MAX_CPUS);
    match definition.cpu_count {
        Some(0) => return no("cpuCount must be at least 1".to_owned()),
        Some(cpus) if cpus > most_cpus => {
            return no(format!("cpuCount must be at most {most_cpus}, not {cpus}"));
        }
        Some(cpus) if cpus != 1 && cpus % 2 != 0 => {
            return no(format!("cpuCount must be 1 or even, not {cpus}"));
        }
        _ => {}
    }
    match definition.memory_mib {
        Some(memory) if memory < MIN_MEMORY_MIB => {
            return no(format!(
                "memoryMB must be at least {MIN_MEMORY_MIB}, not {memory}"
            ));
        }
        Some(memory) if memory > most.memory_mib => {
            let most = most.memory_mib;
            return no(format!("memoryMB must be at most {most}, not {memory}"));
        }
        Some(memory) if memory % 2 != 0 => {
            return no(format!("memoryMB must be even, not {memory}"));
        }
        _ => {}
    }
    match definition.disk_mib {
        Some(disk) if !(MIN_DISK_MIB..=most.disk_mib).contains(&disk) => no(format!(
            "diskSizeMB must be between {MIN_DISK_MIB} and {}, not {disk}",
            most.disk_mib
        )),
        _ => Ok(()),
    }
}

/// A name under which this tenant may keep something.
pub(crate) fn own_reference(tenant: &Tenant, name: &str) -> Result<Reference> {
    if name.trim().is_empty() {
        return Err(Error::Invalid("Name is required".to_owned()));
    }
    let reference = Reference::parse(name)?;
    match &reference.namespace {
        Some(namespace) if *namespace != tenant.slug => Err(Error::Invalid(format!(
            "namespace '{namespace}' must match your team '{}'",
            tenant.slug
        ))),
        _ => Ok(reference),
    }
}

/// That of the name first, then the others, each once.
fn tags_of(reference: &Reference, more: &[String]) -> Result<Vec<String>> {
    let mut tags: Vec<String> = Vec::new();
    let more = more.iter().map(|tag| crate::reference::tag(tag));
    for tag in reference.tag.clone().map(Ok).into_iter().chain(more) {
        let tag = not_a_uuid(tag?)?;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.len() > MOST_TAGS {
        return Err(Error::Invalid(format!(
            "a build has at most {MOST_TAGS} tags"
        )));
    }
    if tags.is_empty() {
        tags.push(DEFAULT_TAG.to_owned());
    }
    Ok(tags)
}

fn taken_as_id(name: &str) -> Error {
    Error::NameTaken {
        name: name.to_owned(),
        by: "another template's ID",
    }
}

impl Built {
    pub(crate) fn owned_by(&self, tenant: &Tenant) -> bool {
        self.row.tenant == tenant.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Limits = Limits {
        cpu_millis: 8000,
        memory_mib: 4096,
        disk_mib: 10_000,
        pids: 1,
    };

    fn definition(cpus: u32, memory: u32) -> Resources {
        Resources {
            cpu_count: Some(cpus),
            memory_mib: Some(memory),
            ..Resources::default()
        }
    }

    #[test]
    fn cpus_are_one_or_even_and_memory_is_even_within_the_maxima() {
        for good in [(1, 128), (2, 512), (8, 4096)] {
            check_limits(definition(good.0, good.1), MOST).unwrap();
        }
        for (cpus, memory, why) in [
            (0, 512, "cpuCount must be at least 1"),
            (3, 512, "cpuCount must be 1 or even, not 3"),
            (10, 512, "cpuCount must be at most 8, not 10"),
            (2, 126, "memoryMB must be at least 128, not 126"),
            (2, 513, "memoryMB must be even, not 513"),
            (2, 4098, "memoryMB must be at most 4096, not 4098"),
        ] {
            let error = check_limits(definition(cpus, memory), MOST).unwrap_err();
            assert_eq!(error.to_string(), why);
        }
    }

    #[test]
    fn tags_are_those_of_name_and_list_each_once() {
        let tags = |name: &str, more: &[&str]| {
            let more: Vec<_> = more.iter().map(|&tag| tag.to_owned()).collect();
            tags_of(&Reference::parse(name).unwrap(), &more)
        };
        assert_eq!(tags("a", &[]).unwrap(), ["default"]);
        assert_eq!(tags("a:v1", &["V2", "v1"]).unwrap(), ["v1", "v2"]);
        assert!(tags("a", &["x:y"]).is_err());
        assert!(tags("a", &["01890a5d-ac96-774b-bcce-b302099a8057"]).is_err());
    }
}
