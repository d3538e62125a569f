//! Who waits for the disk: every answer that promises something over a power cut, and no create.
//! One test, because it counts what the whole process does.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use soulbox_durable::syncs;
use soulbox_runtime::{Node, Result};
use soulbox_types::{EndReason, NetworkPolicy, PauseMode, TemplateId};

#[path = "support/machine.rs"]
mod machine;

use machine::{LONG, Machine, config, spec};

async fn syncs_of<T>(work: impl Future<Output = Result<T>>) -> u64 {
    let before = syncs();
    work.await.unwrap();
    syncs() - before
}

#[tokio::test]
async fn a_create_waits_for_no_disk_and_what_promises_more_does() {
    let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
    let node = machine::open(config(folder.path()), &machine).await;
    let request = spec(LONG);
    assert_eq!(syncs_of(node.create(request.clone())).await, 0, "a create");
    let id = &request.id;
    let later = request.deadline.plus(LONG);
    // The file and its folder.
    assert_eq!(
        syncs_of(node.set_deadline(id, later)).await,
        2,
        "a deadline"
    );
    let rules = NetworkPolicy::default();
    assert_eq!(syncs_of(node.set_network(id, rules)).await, 2, "rules");
    // Its spec, where it runs, its deadline and its pause; its folder and the folder of all.
    for kept in [PauseMode::Memory, PauseMode::Filesystem] {
        assert_eq!(syncs_of(node.pause(id, kept)).await, 6, "a pause");
        assert!(
            syncs_of(node.resume(id, later, kept)).await >= 3,
            "a resume"
        );
    }
    let snapshot = TemplateId::random();
    assert!(syncs_of(node.snapshot(id, snapshot.clone())).await >= 3);
    assert!(syncs_of(node.delete_snapshot(&snapshot)).await >= 1);
    assert_eq!(syncs_of(node.destroy(id, EndReason::Killed)).await, 0);
    let found = spec(LONG);
    node.create(found.clone()).await.unwrap();
    node.pause(&found.id, PauseMode::Memory).await.unwrap();
    assert_eq!(
        syncs_of(node.destroy(&found.id, EndReason::Killed)).await,
        2,
        "the end of what a power cut would bring back"
    );
    std::fs::remove_dir_all(machine::snapshots_dir(folder.path())).unwrap();
}
