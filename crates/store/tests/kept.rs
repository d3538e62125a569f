//! Secrets, volumes, events and webhooks, in a real file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use serde_json::json;
use soulbox_store::{
    EndRow, EventFilter, EventRow, KeyRow, Life, Rest, SandboxRow, SecretRow, Store, TenantRow,
    VolumeRow, WebhookRow,
};
use soulbox_types::{EndReason, TenantId, UnixMillis};
use tempfile::TempDir;

const TENANTS: [&str; 2] = [
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890a5d-ac96-774b-bcce-b302099a8058",
];

fn tenant(index: usize) -> TenantId {
    TENANTS[index].parse().unwrap()
}

async fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("soulbox.db"))
        .await
        .unwrap();
    for (index, slug) in ["one", "two"].into_iter().enumerate() {
        let row = TenantRow {
            id: tenant(index),
            slug: slug.into(),
            name: slug.into(),
            created_at: UnixMillis(1),
        };
        let key = KeyRow {
            id: slug.into(),
            tenant: tenant(index),
            name: "first".into(),
            hash: slug.into(),
            mask_prefix: "ab".into(),
            mask_suffix: "cd".into(),
            value_length: 40,
            created_at: UnixMillis(1),
            last_used_at: None,
        };
        assert!(store.insert_tenant_with_key(&row, &key).await.unwrap());
    }
    (folder, store)
}

fn secret(id: &str, owner: usize, name: &str) -> SecretRow {
    SecretRow {
        id: id.into(),
        tenant: tenant(owner),
        name: name.into(),
        version: 1,
        metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        sealed: "sealed".into(),
        created_at: UnixMillis(1),
        updated_at: UnixMillis(1),
    }
}

fn event(number: i64, kind: &str, sandbox: &str, at: u64) -> EventRow {
    EventRow {
        id: format!("event-{number}"),
        tenant: tenant(0),
        sandbox: sandbox.parse().unwrap(),
        execution: "x".into(),
        template: "base".into(),
        build: "b".into(),
        kind: kind.into(),
        data: json!({"n": number}),
        at: UnixMillis(at),
        number,
    }
}

#[tokio::test]
async fn a_secret_has_one_name_per_tenant_and_is_found_by_id_and_name() {
    let (_folder, store) = store().await;
    let mine = secret("sec_1", 0, "key");
    assert!(store.insert_secret(&mine).await.unwrap());
    assert!(
        !store
            .insert_secret(&secret("sec_2", 0, "key"))
            .await
            .unwrap()
    );
    assert!(
        store
            .insert_secret(&secret("sec_3", 1, "key"))
            .await
            .unwrap()
    );
    for name in ["sec_1", "key"] {
        let found = store.secret(&tenant(0), name).await.unwrap();
        assert_eq!(found, Some(mine.clone()));
    }
    assert_eq!(store.secret(&tenant(1), "sec_1").await.unwrap(), None);
    assert_eq!(store.secrets(&tenant(0)).await.unwrap(), [mine]);
    assert!(!store.delete_secret(&tenant(1), "sec_1").await.unwrap());
    assert!(store.delete_secret(&tenant(0), "sec_1").await.unwrap());
    assert!(!store.delete_secret(&tenant(0), "sec_1").await.unwrap());
}

#[tokio::test]
async fn of_two_writers_of_the_same_version_one_wins() {
    let (_folder, store) = store().await;
    let mut row = secret("sec_1", 0, "key");
    assert!(store.insert_secret(&row).await.unwrap());
    row.version = 2;
    row.sealed = "second".into();
    assert!(store.update_secret(&row).await.unwrap());
    assert!(!store.update_secret(&row).await.unwrap());
    let found = store.secret(&tenant(0), "key").await.unwrap();
    assert_eq!(found, Some(row));
}

#[tokio::test]
async fn a_volume_has_one_name_per_tenant() {
    let (_folder, store) = store().await;
    let row = VolumeRow {
        id: "v1".into(),
        tenant: tenant(0),
        name: "data".into(),
        limit_mib: 7,
        created_at: UnixMillis(3),
    };
    assert!(store.insert_volume(&row).await.unwrap());
    let again = VolumeRow {
        id: "v2".into(),
        ..row.clone()
    };
    assert!(!store.insert_volume(&again).await.unwrap());
    assert_eq!(store.volume("v1").await.unwrap(), Some(row.clone()));
    assert_eq!(store.volumes(&tenant(0)).await.unwrap(), [row]);
    assert!(store.volumes(&tenant(1)).await.unwrap().is_empty());
    assert_eq!(store.volume_ids().await.unwrap(), ["v1"]);
    store.delete_volume("v1").await.unwrap();
    assert_eq!(store.volume("v1").await.unwrap(), None);
}

#[tokio::test]
async fn events_are_filtered_ordered_and_pruned() {
    let (_folder, store) = store().await;
    let all = [
        event(0, "created", "ia", 10),
        event(1, "paused", "ia", 10),
        event(2, "created", "ib", 20),
        event(3, "killed", "ia", 30),
    ];
    store.insert_events(&all).await.unwrap();
    let find = async |filter: EventFilter| -> Vec<i64> {
        let found = store.events(&tenant(0), &filter).await.unwrap();
        found.iter().map(|event| event.number).collect()
    };
    let base = EventFilter {
        limit: 10,
        ..EventFilter::default()
    };
    assert_eq!(find(base.clone()).await, [3, 2, 1, 0]);
    let oldest = EventFilter {
        oldest_first: true,
        limit: 2,
        offset: 1,
        ..base.clone()
    };
    assert_eq!(find(oldest).await, [1, 2]);
    let one = EventFilter {
        sandbox: Some("ib".parse().unwrap()),
        ..base.clone()
    };
    assert_eq!(find(one).await, [2]);
    let kinds = EventFilter {
        kinds: vec!["created".into(), "kill".into()],
        ..base.clone()
    };
    assert_eq!(find(kinds).await, [2, 0]);
    let others = store.events(&tenant(1), &base).await.unwrap();
    assert!(others.is_empty());

    assert_eq!(store.prune_events(UnixMillis(11), 10).await.unwrap(), 2);
    assert_eq!(store.prune_events(UnixMillis(0), 0).await.unwrap(), 1);
    assert_eq!(find(base).await, [3]);
}

#[tokio::test]
async fn a_webhook_is_replaced_by_its_id() {
    let (_folder, store) = store().await;
    let mut row = WebhookRow {
        id: "w".into(),
        tenant: tenant(0),
        name: "n".into(),
        url: "https://example.com".into(),
        events: vec!["sandbox.lifecycle.created".into()],
        enabled: true,
        sealed: "s".into(),
        created_at: UnixMillis(4),
    };
    store.put_webhook(&row).await.unwrap();
    row.enabled = false;
    store.put_webhook(&row).await.unwrap();
    assert_eq!(store.webhooks().await.unwrap(), [row]);
    store.delete_webhook("w").await.unwrap();
    assert!(store.webhooks().await.unwrap().is_empty());
}

#[tokio::test]
async fn lives_and_rests_are_those_of_the_window() {
    let (_folder, store) = store().await;
    for (id, from, end) in [
        ("igone", 1, Some((5, EndReason::Killed))),
        ("ifailed", 10, Some((11, EndReason::CreateFailed))),
        ("iended", 10, Some((30, EndReason::Expired))),
        ("ilives", 20, None),
        ("ilater", 99, None),
    ] {
        let row = SandboxRow {
            id: id.parse().unwrap(),
            tenant: tenant(0),
            template: "base".parse().unwrap(),
            metadata: BTreeMap::new(),
            created_at: UnixMillis(from),
            end: None,
        };
        store.insert_sandbox(&row).await.unwrap();
        if let Some((at, reason)) = end {
            let end = EndRow {
                at: UnixMillis(at),
                reason,
                detail: String::new(),
            };
            store.end_sandbox(&row.id, &end).await.unwrap();
        }
    }
    let lives = store
        .lives(&tenant(0), UnixMillis(6), UnixMillis(50), 10)
        .await
        .unwrap();
    let expected = [("ilives", 20, None), ("iended", 10, Some(30))];
    assert_eq!(
        lives,
        expected.map(|(id, from, to): (&str, u64, Option<u64>)| Life {
            sandbox: id.parse().unwrap(),
            from: UnixMillis(from),
            to: to.map(UnixMillis),
        })
    );
    let events = [
        event(0, "created", "ilives", 20),
        event(1, "paused", "ilives", 22),
        event(2, "resumed", "ilives", 24),
        event(3, "paused", "ilives", 60),
    ];
    store.insert_events(&events).await.unwrap();
    let rests = store.rests(&tenant(0), UnixMillis(50), 10).await.unwrap();
    assert_eq!(
        rests,
        [(22, true), (24, false)].map(|(at, paused)| Rest {
            sandbox: "ilives".parse().unwrap(),
            at: UnixMillis(at),
            paused,
        })
    );
}
