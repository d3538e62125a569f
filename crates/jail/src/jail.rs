//! The tier as the node sees it.

use std::{collections::HashMap, io, os::fd::OwnedFd, path::Path, sync::Arc};

use async_trait::async_trait;
use fs_err as fs;
use parking_lot::Mutex;
use soulbox_cgroup::Cgroup;
use soulbox_machine::{
    DEATH_LIMIT, FREEZE_LIMIT, FirstProcess, Live, Machine, blocking, capture, wait_until_released,
};
use soulbox_net::socket_memory_in;
use soulbox_runtime::{
    AddedLayer, Adopted, DynStream, Error, Exit, NewSandbox, Result, Running, Runtime,
    SocketMemory, Started, Stats,
};
use soulbox_types::{Limits, NetworkPolicy, SandboxId, SandboxSpec, Tier};
use tokio::time::timeout;

use crate::{export, policy::Policy, record::Record, sandbox::Sandbox};

#[derive(Debug)]
pub struct Jail {
    pub(crate) machine: Arc<Machine>,
    pub(crate) policy: Policy,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
}

/// Whether a sandbox of a server that does not run has processes, paused or not. Blocking.
pub fn has_processes(running: &Running) -> Result<bool> {
    let record = Record::from_running(running)?;
    soulbox_machine::is_alive(record.pid, record.start_time, &record.boot_id)
        .map_err(|e| Error::io("could not look for the sandbox", e))
}

impl Jail {
    pub fn open(machine: Arc<Machine>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            machine,
            policy: Policy::load()?,
            sandboxes: Mutex::default(),
        }))
    }

    fn sandbox(&self, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.sandboxes
            .lock()
            .get(id)
            .cloned()
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    /// Ends every process after `flush`, and returns when nothing has the disk mounted any more.
    async fn stop_with(
        &self,
        id: &SandboxId,
        sandbox: Arc<Sandbox>,
        flush: impl FnOnce(&Sandbox) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        // Frozen, so that nothing is written between the flush and the end.
        blocking(move || {
            let freeze = |e| Error::io("could not freeze the sandbox", io::Error::other(e));
            sandbox.cgroup.freeze(FREEZE_LIMIT).map_err(freeze)?;
            flush(&sandbox).inspect_err(|_| {
                if let Err(error) = sandbox.cgroup.thaw(FREEZE_LIMIT) {
                    tracing::error!(%error, "a sandbox that could not be stopped stays frozen");
                }
            })
        })
        .await?;
        self.destroy(id, None).await?;
        let disk = self.machine.disk(id);
        blocking(move || wait_until_released(&disk)).await
    }

    /// Ends the first process, and with it everything in its pid namespace.
    async fn end(&self, process: &FirstProcess, cgroup: &Cgroup) -> Result<()> {
        process
            .kill()
            .map_err(|e| Error::io("could not kill the sandbox", e))?;
        // A frozen process does not die (v1).
        let thawing = cgroup.clone();
        if let Err(error) = blocking(move || {
            thawing
                .thaw(FREEZE_LIMIT)
                .map_err(|e| Error::io("could not thaw", io::Error::other(e)))
        })
        .await
        {
            tracing::debug!(%error, "thawing before the end");
        }
        timeout(DEATH_LIMIT, process.exited())
            .await
            .map(drop)
            .map_err(|_| Error::Timeout {
                what: "the sandbox's end".into(),
                limit: DEATH_LIMIT,
            })
    }
}

#[async_trait]
impl Runtime for Jail {
    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>> {
        let sandbox = self.sandbox(id)?;
        let disk = self.machine.disk(id);
        // Through the host's page cache: the copy is what must be on its disk.
        self.stop_with(id, sandbox.clone(), Sandbox::flush).await?;
        let overlays = sandbox.overlays.clone();
        drop(sandbox);
        export::export(
            &self.machine.config().programs.init,
            &disk,
            overlays,
            target,
        )
        .await
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<()> {
        self.machine.set_limits(id, limits).await
    }

    fn tier(&self) -> Tier {
        Tier::Jail
    }

    fn reserve(&self) -> Option<SandboxId> {
        self.machine.reserve()
    }

    fn release(&self, id: &SandboxId) {
        self.machine.release(id);
    }

    async fn create(&self, new: NewSandbox<'_>, started: &Started<'_>) -> Result<()> {
        let spec = new.spec;
        // Before anything that a failure would have to take back: what is there is another's.
        if self.sandboxes.lock().contains_key(&spec.id) {
            return Err(Error::InUse {
                what: format!("the disk of sandbox {}", spec.id),
                users: "the sandbox, which runs already".to_owned(),
            });
        }
        self.machine.check_unused(&spec.id, new.origin.disk).await?;
        match self.start(&new, started).await {
            Ok(sandbox) => {
                self.sandboxes
                    .lock()
                    .insert(spec.id.clone(), Arc::new(sandbox));
                Ok(())
            }
            Err(error) => {
                if let Err(clean_up) = self.machine.clean_up(&spec.id).await {
                    tracing::warn!(sandbox_id = %spec.id, error = %clean_up, "clean-up after a failed start");
                }
                Err(error)
            }
        }
    }

    async fn adopt(&self, spec: &SandboxSpec, running: &Running) -> Result<Adopted> {
        let record = Record::from_running(running)?;
        if record.boot_id != self.machine.boot_id() {
            self.machine.clean_up(&spec.id).await?;
            return Ok(Adopted::Rebooted);
        }
        let found = FirstProcess::find(record.pid, Some(record.start_time))
            .map_err(|e| Error::io("could not look for the sandbox", e))?;
        let Some(process) = found else {
            self.machine.clean_up(&spec.id).await?;
            return Ok(Adopted::Gone);
        };
        let known = self.sandboxes.lock().get(&spec.id).cloned();
        if known.is_some_and(|known| known.process.is(&process)) {
            // An earlier try went as far as this.
            return Ok(Adopted::Alive);
        }
        let netns: OwnedFd = fs::File::open(format!("/proc/{}/ns/net", record.pid))
            .map_err(|e| Error::io("could not open the sandbox's network", e))?
            .into_parts()
            .0
            .into();
        let slot = self
            .machine
            .adopt_slot(record.slot, netns, &spec.network)
            .await?;
        let cgroup = self.machine.cgroups().existing(spec.id.as_str());
        let sandbox = Sandbox {
            process,
            cgroup,
            slot,
            disk: record.disk,
            // Only builds export layers, and none outlives its server.
            overlays: Vec::new(),
        };
        self.sandboxes
            .lock()
            .insert(spec.id.clone(), Arc::new(sandbox));
        Ok(Adopted::Alive)
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        let sandbox = self.sandbox(id)?;
        match sandbox.connect(port).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(Error::PortClosed {
                    id: id.clone(),
                    port,
                })
            }
            Err(error) => Err(Error::io(
                format!("could not reach port {port} of {id}"),
                error,
            )),
        }
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        let disk = self.machine.disk(id);
        blocking(move || {
            let freeze = |e| Error::io("could not freeze the sandbox", io::Error::other(e));
            sandbox.cgroup.freeze(FREEZE_LIMIT).map_err(freeze)?;
            if let Err(error) = sandbox.sync(&disk) {
                // A pause that is not safe on disk is none: the sandbox goes on as before.
                sandbox.cgroup.thaw(FREEZE_LIMIT).map_err(freeze)?;
                return Err(error);
            }
            // Only a favour to the machine: page cache and, with swap, idle memory.
            if let Err(error) = sandbox.cgroup.reclaim_memory() {
                tracing::debug!(%error, "the memory of a paused sandbox stays");
            }
            Ok(())
        })
        .await
    }

    async fn hold(&self, id: &SandboxId) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        blocking(move || {
            sandbox
                .cgroup
                .freeze(FREEZE_LIMIT)
                .map_err(|e| Error::io("could not freeze the sandbox", io::Error::other(e)))
        })
        .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        blocking(move || {
            sandbox
                .cgroup
                .thaw(FREEZE_LIMIT)
                .map_err(|e| Error::io("could not thaw the sandbox", io::Error::other(e)))
        })
        .await
    }

    async fn set_network(&self, id: &SandboxId, network: &NetworkPolicy) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        self.machine.set_policy(&sandbox.slot, network).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        let disk = self.machine.disk(id);
        let known = self.sandboxes.lock().get(id).cloned();
        if let Some(sandbox) = known.filter(|sandbox| !sandbox.process.has_exited()) {
            let flush = move |sandbox: &Sandbox| sandbox.sync(&disk);
            return self.stop_with(id, sandbox, flush).await;
        }
        // Nothing runs any more, or a start that failed has left something.
        self.destroy(id, None).await?;
        blocking(move || {
            wait_until_released(&disk)?;
            std::fs::File::open(&disk)
                .and_then(|image| image.sync_all())
                .map_err(|e| Error::io("could not write the sandbox's files to disk", e))
        })
        .await
    }

    async fn capture(&self, id: &SandboxId, target: &Path) -> Result<()> {
        let running = self.sandboxes.lock().get(id).cloned();
        let (disk, target) = (self.machine.disk(id), target.to_owned());
        blocking(move || {
            let Some(sandbox) = running.as_deref() else {
                return capture(None, &disk, &target);
            };
            let live = Live {
                cgroup: &sandbox.cgroup,
                sync: &|| sandbox.sync(&disk),
            };
            capture(Some(&live), &disk, &target)
        })
        .await
    }

    async fn stats(&self, id: &SandboxId) -> Result<Stats> {
        let sandbox = self.sandbox(id)?;
        blocking(move || sandbox.stats()).await
    }

    async fn socket_memory(&self, id: &SandboxId) -> Result<SocketMemory> {
        let sandbox = self.sandbox(id)?;
        let told = socket_memory_in(sandbox.slot.netns())
            .await
            .map_err(|e| Error::io("could not read what its sockets hold", e))?;
        Ok(SocketMemory {
            bytes: told.bytes,
            sockets: told.sockets,
            complete: told.complete,
        })
    }

    async fn unwritten_bytes(&self, id: &SandboxId) -> u64 {
        let cgroup = self.machine.cgroups().existing(id.as_str());
        let read = blocking(move || Ok(cgroup.unwritten_bytes().unwrap_or(0)));
        read.await.unwrap_or(0)
    }

    async fn wait(&self, id: &SandboxId) -> Result<Exit> {
        let process = self.sandbox(id)?.process.clone();
        Ok(process.exited().await)
    }

    async fn destroy(&self, id: &SandboxId, running: Option<&Running>) -> Result<()> {
        let known = self.sandboxes.lock().get(id).cloned();
        if let Some(sandbox) = known {
            self.end(&sandbox.process, &sandbox.cgroup).await?;
        } else if let Some(running) = running {
            let record = Record::from_running(running)?;
            if record.boot_id == self.machine.boot_id()
                && let Some(process) = FirstProcess::find(record.pid, Some(record.start_time))
                    .map_err(|e| Error::io("could not look for the sandbox", e))?
            {
                self.end(&process, &self.machine.cgroups().existing(id.as_str()))
                    .await?;
            }
        }
        self.machine.clean_up(id).await?;
        // Last: while it is listed, the slot is not given to another sandbox.
        self.sandboxes.lock().remove(id);
        Ok(())
    }

    async fn put_away(&self, id: &SandboxId, running: Option<&Running>) -> Result<()> {
        // A record that nobody understands is of no use; its group has all of its processes.
        let usable = running.filter(|running| Record::from_running(running).is_ok());
        self.destroy(id, usable).await?;
        let disk = self.machine.disk(id);
        blocking(move || {
            // With the last process goes the mount, and with that everything is in the image.
            wait_until_released(&disk)?;
            match std::fs::File::open(&disk).and_then(|image| image.sync_all()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::io("could not write the sandbox's disk", error))
                }
                _ => Ok(()),
            }
        })
        .await
    }

    async fn reclaim(&self, keep: &[SandboxId]) -> Result<()> {
        self.machine.reclaim(keep).await
    }
}
