//! One running build, and the state of its stages.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use soulbox_image::ImageStore;
use soulbox_runtime::{AddedLayer, BuildNode};
use soulbox_template::{Template, Templates};
use soulbox_types::{StartCommand, guest::OverlaySpec};
use tokio_util::task::TaskTracker;

use crate::{
    BuildLog, BuildRequest, BuilderConfig,
    disk_use::Sizes,
    files::Files,
    key::Key,
    lease::{Lease, Leases},
    state::State,
    step_cache::{StepCache, StepResult},
    step_log::StepLog,
};

/// What all builds share: configuration, node, templates, caches.
#[derive(Debug)]
pub(crate) struct BuildContext {
    pub(crate) config: BuilderConfig,
    pub(crate) node: Arc<dyn BuildNode>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) images: Arc<ImageStore>,
    pub(crate) steps: StepCache,
    pub(crate) files: Files,
    pub(crate) leases: Leases,
    pub(crate) sizes: Sizes,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) context: Arc<BuildContext>,
    pub(crate) request: Arc<BuildRequest>,
    pub(crate) log: Arc<dyn BuildLog>,
    /// Sandboxes that are being ended: a build is over when these are gone too.
    pub(crate) closing: TaskTracker,
    /// The step that is running.
    reached: Arc<Mutex<String>>,
}

impl Job {
    pub(crate) fn new(
        context: Arc<BuildContext>,
        request: BuildRequest,
        log: Arc<dyn BuildLog>,
    ) -> Self {
        Self {
            context,
            request: Arc::new(request),
            log,
            closing: TaskTracker::new(),
            reached: Arc::new(Mutex::new("base".to_owned())),
        }
    }

    pub(crate) fn reach(&self, step: &str) {
        step.clone_into(&mut self.reached.lock());
    }

    pub(crate) fn reached(&self) -> String {
        self.reached.lock().clone()
    }

    pub(crate) fn step_log(&self, step: &str, prefix: &str) -> StepLog {
        StepLog::new(Arc::clone(&self.log), step, prefix)
    }
}

/// The layers and settings of a stage after its last step.
#[derive(Debug, Clone)]
pub(crate) struct StageState {
    pub(crate) key: Key,
    pub(crate) overlays: Vec<OverlaySpec>,
    pub(crate) state: State,
    /// Of the template at the bottom.
    pub(crate) start: Option<StartCommand>,
    leases: Vec<Arc<Lease>>,
}

impl StageState {
    pub(crate) fn of_template(key: Key, template: &Template, leases: &Leases) -> Self {
        let layers = template.overlays.iter().flat_map(|overlay| &overlay.lower);
        Self {
            key,
            overlays: template.overlays.clone(),
            state: State::of_template(template),
            start: template.start.clone(),
            leases: vec![leases.hold(layers.cloned())],
        }
    }

    /// `layers`: lowest first.
    pub(crate) fn of_layers(key: Key, layers: &[PathBuf], state: State, leases: &Leases) -> Self {
        Self {
            key,
            overlays: vec![OverlaySpec {
                target: PathBuf::from("/"),
                lower: layers.iter().rev().cloned().collect(),
            }],
            state,
            start: None,
            leases: vec![leases.hold(layers.iter().cloned())],
        }
    }

    /// Adds the result of a step.
    pub(crate) fn advance(&mut self, key: &Key, done: StepResult) {
        self.key = if done.generation.is_empty() {
            key.clone()
        } else {
            key.then(&[&done.generation])
        };
        self.state = done.state;
        for AddedLayer { target, directory } in done.layers {
            if let Some(overlay) = self.overlays.iter_mut().find(|o| o.target == target) {
                overlay.lower.insert(0, directory);
            }
        }
        self.leases.push(done.lease);
    }

    /// What several made out of this at the same time, as if one after the other.
    pub(crate) fn joined(&self, lanes: Vec<Self>) -> Self {
        let mut joined = self.clone();
        let keys: Vec<_> = lanes.iter().map(|lane| lane.key.as_str()).collect();
        joined.key = self.key.then(&[&["lanes"], &*keys].concat());
        for lane in lanes {
            for (all, own) in joined.overlays.iter_mut().zip(&lane.overlays) {
                let below = self.overlays.iter().find(|o| o.target == own.target);
                let below = below.map_or(0, |overlay| overlay.lower.len());
                let new = own.lower.len().saturating_sub(below);
                all.lower.splice(0..0, own.lower[..new].iter().cloned());
            }
            joined.leases.extend(lane.leases);
        }
        joined
    }

    /// Of the mount point with the most layers.
    pub(crate) fn layer_count(&self) -> usize {
        let heights = self.overlays.iter().map(|overlay| overlay.lower.len());
        heights.max().unwrap_or(0)
    }
}
