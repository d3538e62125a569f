//! What really is: trees of processes on disks, whatever the node believes. They outlive it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use soulbox_runtime::{
    AddedLayer, Adopted, Disk, DynStream, Error, Exit, NewSandbox, Result, Running, Runtime,
    Started, Stats,
};
use soulbox_types::{Limits, NetworkPolicy, SandboxId, SandboxSpec, Tier};
use tokio::sync::watch;

use crate::dice::Dice;

#[derive(Debug)]
struct Tree {
    frozen: bool,
    dead: watch::Sender<bool>,
}

#[derive(Debug)]
pub(crate) struct World {
    dice: Arc<Dice>,
    sandboxes_dir: PathBuf,
    trees: Mutex<HashMap<SandboxId, Tree>>,
    boot: Mutex<u64>,
    /// One call in so many fails; 0: none.
    failing: Mutex<usize>,
    /// What no machine should be asked to do.
    wrongs: Mutex<Vec<String>>,
}

/// How much of a call that fails is done.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Nothing,
    Everything,
}

impl World {
    pub(crate) fn new(dice: Arc<Dice>, sandboxes_dir: PathBuf) -> Self {
        Self {
            dice,
            sandboxes_dir,
            trees: Mutex::default(),
            boot: Mutex::default(),
            failing: Mutex::default(),
            wrongs: Mutex::default(),
        }
    }

    /// `None`: nothing runs. Else whether it stands still.
    pub(crate) fn frozen(&self, id: &SandboxId) -> Option<bool> {
        self.trees.lock().get(id).map(|tree| tree.frozen)
    }

    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().clone()
    }

    pub(crate) fn fail_one_in(&self, times: usize) {
        *self.failing.lock() = times;
    }

    /// The first process is killed. `false`: nothing runs that could be.
    pub(crate) fn kill(&self, id: &SandboxId) -> bool {
        let Some(tree) = self.trees.lock().remove(id) else {
            return false;
        };
        tree.dead.send_replace(true);
        true
    }

    pub(crate) fn reboot(&self) {
        self.trees.lock().clear();
        *self.boot.lock() += 1;
    }

    fn wrong(&self, what: String) {
        self.wrongs.lock().push(what);
    }

    fn disk(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes_dir.join(id.as_str()).join("disk.img")
    }

    /// Others may come between any two things.
    async fn others(&self) {
        for _ in 0..self.dice.below(4) {
            tokio::task::yield_now().await;
        }
    }

    fn fails(&self) -> Option<Part> {
        let times = *self.failing.lock();
        if times == 0 || !self.dice.one_in(times) {
            return None;
        }
        Some(if self.dice.one_in(2) {
            Part::Nothing
        } else {
            Part::Everything
        })
    }

    /// Changes the tree, or fails before or after that.
    async fn change(&self, change: impl FnOnce(&mut HashMap<SandboxId, Tree>)) -> Result<()> {
        self.others().await;
        let fails = self.fails();
        if fails != Some(Part::Nothing) {
            change(&mut self.trees.lock());
        }
        self.others().await;
        fails.map_or(Ok(()), |_| Err(failed()))
    }
}

fn failed() -> Error {
    Error::io("made to fail", std::io::Error::other("by the dice"))
}

#[derive(Debug)]
pub(crate) struct ModelRuntime(pub(crate) Arc<World>);

#[async_trait]
impl Runtime for ModelRuntime {
    fn tier(&self) -> Tier {
        Tier::Jail
    }

    async fn create(&self, new: NewSandbox<'_>, started: &Started<'_>) -> Result<()> {
        let (world, id) = (&self.0, &new.spec.id);
        world.others().await;
        if world.trees.lock().contains_key(id) {
            world.wrong(format!("{id} is started on a disk that is mounted"));
            return Err(Error::InUse {
                what: format!("disk of {id}"),
                users: "its processes".into(),
            });
        }
        let disk = world.disk(id);
        match new.origin.disk {
            Disk::Fresh => std::fs::write(&disk, id.as_str()).map_err(|e| Error::io("disk", e))?,
            Disk::Existing => {
                let found = std::fs::read_to_string(&disk).unwrap_or_default();
                if found != id.as_str() {
                    world.wrong(format!("the disk of {id} holds {found:?}"));
                }
            }
        }
        if world.fails().is_some() {
            return Err(failed());
        }
        started(&Running {
            tier: Tier::Jail,
            record: world.boot.lock().to_string(),
        })?;
        let tree = Tree {
            frozen: false,
            dead: watch::Sender::new(false),
        };
        world.trees.lock().insert(id.clone(), tree);
        world.others().await;
        if world.fails().is_some() {
            world.trees.lock().remove(id);
            return Err(failed());
        }
        Ok(())
    }

    async fn adopt(&self, spec: &SandboxSpec, running: &Running) -> Result<Adopted> {
        self.0.others().await;
        if running.record != self.0.boot.lock().to_string() {
            return Ok(Adopted::Rebooted);
        }
        Ok(match self.0.frozen(&spec.id) {
            Some(_) => Adopted::Alive,
            None => Adopted::Gone,
        })
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        Err(Error::PortClosed {
            id: id.clone(),
            port,
        })
    }

    /// One that fails lets it go on.
    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.0.others().await;
        let failing = self.0.fails().is_some();
        match self.0.trees.lock().get_mut(id) {
            Some(tree) => tree.frozen = !failing,
            None => return Err(Error::SandboxNotFound(id.clone())),
        }
        self.0.others().await;
        if failing { Err(failed()) } else { Ok(()) }
    }

    async fn hold(&self, id: &SandboxId) -> Result<()> {
        self.0
            .change(|trees| {
                if let Some(tree) = trees.get_mut(id) {
                    tree.frozen = true;
                }
            })
            .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.0
            .change(|trees| {
                if let Some(tree) = trees.get_mut(id) {
                    tree.frozen = false;
                }
            })
            .await
    }

    async fn set_network(&self, _id: &SandboxId, _network: &NetworkPolicy) -> Result<()> {
        Ok(())
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        self.0
            .change(|trees| {
                if let Some(tree) = trees.remove(id) {
                    tree.dead.send_replace(true);
                }
            })
            .await
    }

    async fn capture(&self, id: &SandboxId, target: &Path) -> Result<()> {
        self.0.others().await;
        let copied = std::fs::copy(self.0.disk(id), target);
        copied.map_err(|e| Error::io("copy", e))?;
        if self.0.fails().is_some() {
            return Err(failed());
        }
        Ok(())
    }

    async fn export(&self, _id: &SandboxId, _target: &Path) -> Result<Vec<AddedLayer>> {
        Ok(Vec::new())
    }

    async fn set_limits(&self, _id: &SandboxId, _limits: &Limits) -> Result<()> {
        Ok(())
    }

    async fn stats(&self, _id: &SandboxId) -> Result<Stats> {
        Ok(Stats::default())
    }

    async fn wait(&self, id: &SandboxId) -> Result<Exit> {
        let dead = self
            .0
            .trees
            .lock()
            .get(id)
            .map(|tree| tree.dead.subscribe());
        if let Some(mut dead) = dead {
            // Dropped with a machine that is started anew.
            let _dead = dead.wait_for(|dead| *dead).await.is_ok();
        }
        Ok(Exit {
            description: "signal 9".into(),
        })
    }

    async fn destroy(&self, id: &SandboxId, _running: Option<&Running>) -> Result<()> {
        self.0
            .change(|trees| {
                if let Some(tree) = trees.remove(id) {
                    tree.dead.send_replace(true);
                }
            })
            .await
    }

    async fn reclaim(&self, keep: &[SandboxId]) -> Result<()> {
        self.0.trees.lock().retain(|id, _| keep.contains(id));
        Ok(())
    }
}
