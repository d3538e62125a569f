//! One build under way, and what it stands on.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use soulbox_image::ImageStore;
use soulbox_runtime::{AddedLayer, Node};
use soulbox_template::{Template, Templates};
use soulbox_types::{StartCommand, guest::OverlaySpec};
use tokio_util::task::TaskTracker;

use crate::{
    BuildLog, BuildRequest, BuilderConfig,
    files::Files,
    journal::Journal,
    key::Key,
    lease::{Lease, Leases},
    state::State,
    steps::{Done, Steps},
};

/// What all builds share.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) config: BuilderConfig,
    pub(crate) node: Arc<dyn Node>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) images: Arc<ImageStore>,
    pub(crate) steps: Steps,
    pub(crate) files: Files,
    pub(crate) leases: Leases,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) shop: Arc<Workshop>,
    pub(crate) request: Arc<BuildRequest>,
    pub(crate) log: Arc<dyn BuildLog>,
    /// Sandboxes that are being ended: a build is over when these are gone too.
    pub(crate) closing: TaskTracker,
    /// The step that is under way.
    reached: Arc<Mutex<String>>,
}

impl Job {
    pub(crate) fn new(shop: Arc<Workshop>, request: BuildRequest, log: Arc<dyn BuildLog>) -> Self {
        Self {
            shop,
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

    pub(crate) fn journal(&self, step: &str, prefix: &str) -> Journal {
        Journal::new(Arc::clone(&self.log), step, prefix)
    }
}

/// Files and settings between two steps.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) key: Key,
    pub(crate) overlays: Vec<OverlaySpec>,
    pub(crate) state: State,
    /// Of the template at the bottom.
    pub(crate) start: Option<StartCommand>,
    leases: Vec<Arc<Lease>>,
}

impl Ground {
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

    /// Goes on from what a step left.
    pub(crate) fn advance(&mut self, key: &Key, done: Done) {
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

    /// At the mount point with the most.
    pub(crate) fn height(&self) -> usize {
        let heights = self.overlays.iter().map(|overlay| overlay.lower.len());
        heights.max().unwrap_or(0)
    }
}
