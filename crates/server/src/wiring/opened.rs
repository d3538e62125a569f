//! What a start has opened so far: closed in order when the server ends, or when its start fails or is
//! interrupted.

use std::{sync::Arc, time::Duration};

use soulbox_build::Builder;
use soulbox_control::{Control, volume::Volumes};
use soulbox_machine::Machine;
use soulbox_node::LocalNode;
use soulbox_store::Store;
use soulbox_types::Chain;

/// For creates and kills in flight when the server stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) machine: Arc<Machine>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) node: Option<Arc<LocalNode>>,
    pub(super) store: Option<Store>,
    pub(super) control: Option<Arc<Control>>,
    pub(super) builder: Option<Arc<Builder>>,
}

impl Opened {
    pub(super) fn new(machine: Arc<Machine>, volumes: Arc<Volumes>) -> Self {
        Self {
            machine,
            volumes,
            node: None,
            store: None,
            control: None,
            builder: None,
        }
    }

    /// Sandboxes keep running, with their mounts.
    pub(super) async fn close(self) {
        let Self {
            machine,
            volumes,
            node,
            store,
            control,
            builder: _,
        } = self;
        if let Some(node) = &node {
            node.close_admission();
        }
        if let Some(control) = control {
            control.drain(FINISH_TIMEOUT).await;
        }
        if let Some(node) = node {
            node.close_pool().await;
        }
        if let Err(error) = tokio::task::spawn_blocking(move || volumes.close()).await {
            tracing::warn!(error = %Chain(&error), "could not unmount the volumes");
        }
        if let Some(store) = store {
            store.close().await;
        }
        machine.close().await;
    }
}
