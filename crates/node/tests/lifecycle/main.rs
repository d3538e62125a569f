//! The node's promises, with a runtime that keeps its sandboxes in memory: what is asserted here
//! is who does what when, not the kernel. The real jail is driven by the suites under `tests/`.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod adopting;
mod ends;
mod pausing;
mod running;
mod snapshots;

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use soulbox_node::{LocalNode, NodeConfig};
use soulbox_runtime::{BuildNode, Error, Node, NodeEvent};
use soulbox_types::{
    EndReason, Lifecycle, NetworkPolicy, OnTimeout, PauseMode, Purpose, SandboxId, SandboxSpec,
    SandboxState, TemplateId, UnixMillis,
};
use tokio::sync::Notify;

#[path = "../support/machine.rs"]
mod machine;

use machine::{LONG, Machine, config, ends_dir, snapshots_dir, spec};

async fn node(folder: &Path, machine: &Arc<Machine>) -> Arc<LocalNode> {
    let config = NodeConfig {
        max_sandboxes: 3,
        ..config(folder)
    };
    machine::open(config, machine).await
}

async fn ended(
    node: &LocalNode,
    events: &mut tokio::sync::broadcast::Receiver<NodeEvent>,
) -> EndReason {
    let event = tokio::time::timeout(Duration::from_secs(10), events.recv())
        .await
        .unwrap();
    let NodeEvent::Ended { id, reason, .. } = event.unwrap() else {
        panic!("it did not end")
    };
    assert!(node.get(&id).is_none());
    reason
}

fn folders(path: &Path) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

async fn reasons(node: &LocalNode) -> HashMap<SandboxId, (EndReason, String)> {
    let ends = node.unrecorded_ends().await.into_iter();
    ends.map(|end| (end.spec.id.clone(), (end.reason, end.detail)))
        .collect()
}
