//! From a spec to a running sandbox.

use std::path::PathBuf;

use soulbox_cgroup::Cgroup;
use soulbox_machine::{FirstProcess, HOSTNAME, OVERLAYS, StartedInit};
use soulbox_runtime::{Error, NewSandbox, Result, Started};
use soulbox_template::Template;
use soulbox_types::{EnvdConfig, guest::InitSpec};

use crate::{
    jail::Jail,
    policy::{MASKED, READ_ONLY},
    record::Record,
    sandbox::Sandbox,
};

impl Jail {
    pub(crate) async fn start(
        &self,
        new: &NewSandbox<'_>,
        started: &Started<'_>,
    ) -> Result<Sandbox> {
        let machine = &self.machine;
        let (prepared, ()) = tokio::try_join!(
            machine.slot_for(new.spec),
            machine.make_disk(new.spec, new.origin.disk),
        )?;
        let StartedInit {
            launched,
            cgroup,
            slot,
        } = machine
            .launch(prepared, |first_id, cgroup| {
                self.init_spec(new, first_id, cgroup)
            })
            .await?;
        let found = FirstProcess::find(launched.pid, None)
            .map_err(|e| Error::io("could not watch the sandbox", e))?;
        let Some(process) = found else {
            // Its last words say why.
            launched.ready().await?;
            return Err(Error::Start {
                step: "first process".to_owned(),
                message: "it ended at once".to_owned(),
            });
        };
        let record = Record {
            pid: process.pid(),
            start_time: process.start_time(),
            boot_id: machine.boot_id().to_owned(),
            slot: slot.index(),
            disk: Some(launched.disk.clone()),
        };
        started(&record.to_running()?)?;
        launched.ready().await?;
        Ok(Sandbox {
            process,
            cgroup,
            slot,
            disk: record.disk,
            overlays: targets(new.template),
        })
    }

    fn init_spec(&self, new: &NewSandbox<'_>, first_id: u32, cgroup: &Cgroup) -> InitSpec {
        let NewSandbox {
            spec,
            template,
            origin,
        } = new;
        let machine = &self.machine;
        let mut env = template.env.clone();
        env.extend(spec.env.clone());
        InitSpec {
            id_base: first_id,
            hostname: HOSTNAME.to_owned(),
            cgroup_view: cgroup.view(),
            disk: machine.disk(&spec.id),
            snapshots: origin.snapshots.clone(),
            volumes: machine.volumes(spec),
            overlays: machine.overlays(template),
            staging: machine.staging().clone(),
            tmpfs_bytes: spec.limits.memory_bytes() / 2,
            seccomp: self.policy.seccomp.clone(),
            capabilities: self.policy.capabilities.clone(),
            masked: MASKED.iter().map(PathBuf::from).collect(),
            read_only: READ_ONLY.iter().map(PathBuf::from).collect(),
            envd: machine.config().programs.envd.clone(),
            envd_config: EnvdConfig {
                sandbox_id: spec.id.to_string(),
                template_id: spec.template.to_string(),
                access_token: spec.access_token.clone(),
                node_token: spec.node_token.clone(),
                env,
                default_user: template.default_user.clone(),
                default_workdir: template.default_workdir.clone(),
                memory_bytes: spec.limits.memory_bytes(),
                cpu_count: spec.limits.cpu_count(),
                disk_bytes: spec.limits.disk_bytes(),
            },
        }
    }
}

/// Where the template's overlays are mounted.
fn targets(template: &Template) -> Vec<PathBuf> {
    let overlays = template.overlays.iter().take(OVERLAYS);
    overlays.map(|overlay| overlay.target.clone()).collect()
}
