//! The smallest tier that a node can drive, to learn from: it walls off nothing, its sandbox is one
//! `sleep` of the host. `CONTRIBUTING.md` says how to go on from here.
//!
//! ```text
//! cargo run -p soulbox-node --example toy_tier
//! ```

use std::{collections::HashMap, error, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use soulbox_node::{AdmissionConfig, LocalNode, NodeConfig, PoolConfig};
use soulbox_runtime::{
    AddedLayer, Adopted, DynStream, Error, Exit, NewSandbox, Node, Result, Running, Runtime,
    Started, Stats,
};
use soulbox_template::{Template, Templates};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, SandboxId, SandboxSpec, TemplateId, Tier, UnixMillis,
};
use tokio::{process::Command, sync::watch};

/// The sandboxes that run. The value becomes true when one is to end; its receiver goes when it has.
#[derive(Debug, Default)]
struct Toy(Mutex<HashMap<SandboxId, watch::Sender<bool>>>);

impl Toy {
    async fn end(&self, id: &SandboxId) {
        let ending = self.0.lock().remove(id);
        if let Some(ending) = ending {
            ending.send_replace(true);
            ending.closed().await;
        }
    }
}

#[async_trait]
impl Runtime for Toy {
    fn tier(&self) -> Tier {
        Tier::Docker // a tier of your own is a new variant of this
    }

    async fn create(&self, new: NewSandbox<'_>, started: &Started<'_>) -> Result<()> {
        let mut sleep = Command::new("sleep")
            .arg("3600")
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::io("could not start the sandbox", error))?;
        let record = sleep.id().unwrap_or_default().to_string();
        // On disk before anything else may fail: a server that dies now finds it again by this.
        started(&Running {
            tier: self.tier(),
            record,
        })?;
        let (ending, mut ended) = watch::channel(false);
        self.0.lock().insert(new.spec.id.clone(), ending);
        tokio::spawn(async move {
            tokio::select! {
                _ = sleep.wait() => return,
                _ = ended.changed() => {}
            }
            // Fails only if it ended by itself at this very moment.
            sleep.kill().await.ok();
        });
        Ok(())
    }

    async fn adopt(&self, _: &SandboxSpec, _: &Running) -> Result<Adopted> {
        Ok(Adopted::Gone) // `kill_on_drop`: it never outlives its server
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        let id = id.clone();
        Err(Error::PortClosed { id, port })
    }

    async fn wait(&self, id: &SandboxId) -> Result<Exit> {
        let running = self.0.lock().get(id).cloned();
        if let Some(running) = running {
            running.closed().await;
        }
        Ok(Exit {
            description: "unknown".into(),
        })
    }

    async fn destroy(&self, id: &SandboxId, _: Option<&Running>) -> Result<()> {
        self.end(id).await;
        Ok(())
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        self.end(id).await;
        Ok(())
    }

    async fn pause(&self, _: &SandboxId) -> Result<()> {
        Err(self.unsupported("pause"))
    }

    async fn hold(&self, _: &SandboxId) -> Result<()> {
        Err(self.unsupported("pause"))
    }

    async fn resume(&self, _: &SandboxId) -> Result<()> {
        Err(self.unsupported("resume"))
    }

    async fn set_network(&self, _: &SandboxId, _: &NetworkPolicy) -> Result<()> {
        Err(self.unsupported("network rules"))
    }

    async fn capture(&self, _: &SandboxId, _: &Path) -> Result<()> {
        Err(self.unsupported("a snapshot"))
    }

    async fn export(&self, _: &SandboxId, _: &Path) -> Result<Vec<AddedLayer>> {
        Err(self.unsupported("a build"))
    }

    async fn set_limits(&self, _: &SandboxId, _: &Limits) -> Result<()> {
        Err(self.unsupported("a change of limits"))
    }

    async fn stats(&self, _: &SandboxId) -> Result<Stats> {
        Ok(Stats::default())
    }

    async fn reclaim(&self, _: &[SandboxId]) -> Result<()> {
        Ok(())
    }
}

/// What sandboxes start from; a tier finds the layers of their root here.
fn template() -> Template {
    Template {
        id: TemplateId::random(),
        build_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        aliases: Vec::new(),
        overlays: Vec::new(),
        env: [].into(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        limits: Limits::default(),
        start: None,
        created_at: UnixMillis::now(),
    }
}

fn spec(template: &Template) -> std::result::Result<SandboxSpec, Box<dyn error::Error>> {
    let tenant = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
    Ok(SandboxSpec {
        tier: Tier::Docker,
        ..SandboxSpec::new(tenant, template.id.clone(), Duration::from_mins(5))
    })
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn error::Error>> {
    let folder = tempfile::tempdir()?;
    let template = template();
    let templates = Templates::open(folder.path().join("builds"))?;
    templates.set_own(template.clone());
    let config = NodeConfig {
        sandboxes_dir: folder.path().join("sandboxes"),
        snapshots_dir: folder.path().join("snapshots"),
        ends_dir: folder.path().join("ends"),
        quarantine_dir: folder.path().join("quarantine"),
        volumes_dir: folder.path().join("volumes"),
        max_sandboxes: 10,
        min_free_disk: 0,
        templates: Arc::new(templates),
        ready_limit: Duration::from_secs(5),
        pool: PoolConfig::off(),
        admission: AdmissionConfig::default(),
    };
    let node = LocalNode::open(config, Arc::new(Toy::default())).await?;
    let made = node.create(spec(&template)?).await?;
    println!(
        "{} is {:?}, tier {}",
        made.spec.id, made.state, made.spec.tier
    );
    node.destroy(&made.spec.id, EndReason::Killed).await?;
    let left = std::fs::read_dir(folder.path().join("sandboxes"))?.count();
    println!(
        "after its end: {:?}, folders left: {left}",
        node.get(&made.spec.id).map(|it| it.state)
    );
    Ok(())
}
