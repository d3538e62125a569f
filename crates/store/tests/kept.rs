//! Secrets, volumes, events and webhooks, in both databases.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeMap;

use soulbox_store::{EndRow, EventFilter, Inserted, PauseChange, RunSpan, SandboxRow, WebhookRow};
use soulbox_types::{EndReason, UnixMillis};
use support::{
    Database,
    rows::{event, secret, tenant_id, volume},
};

support::on_both![
    a_secret_has_one_name_per_tenant_and_is_found_by_id_and_name,
    of_two_writers_of_the_same_version_one_wins,
    a_tenant_has_only_as_many_secrets_and_volumes_as_it_may,
    what_no_name_can_be_is_not_found,
    a_volume_has_one_name_per_tenant,
    events_are_filtered_ordered_and_pruned,
    a_webhook_is_replaced_by_its_id,
    lives_and_rests_are_those_of_the_window,
];

async fn a_secret_has_one_name_per_tenant_and_is_found_by_id_and_name(database: Database) {
    let store = database.open().await;
    let mine = secret("sec_1", 0, "key");
    let insert = async |row| store.insert_secret(&row, 9).await.unwrap();
    assert_eq!(insert(mine.clone()).await, Inserted::Yes);
    let again = secret("sec_2", 0, "key");
    assert_eq!(insert(again).await, Inserted::NameTaken);
    let others = secret("sec_3", 1, "key");
    assert_eq!(insert(others).await, Inserted::Yes);
    for name in ["sec_1", "key"] {
        let found = store.secret(&tenant_id(0), name).await.unwrap();
        assert_eq!(found, Some(mine.clone()));
    }
    assert_eq!(store.secret(&tenant_id(1), "sec_1").await.unwrap(), None);
    assert_eq!(store.secrets(&tenant_id(0)).await.unwrap(), [mine]);
    assert!(!store.delete_secret(&tenant_id(1), "sec_1").await.unwrap());
    assert!(store.delete_secret(&tenant_id(0), "sec_1").await.unwrap());
    assert!(!store.delete_secret(&tenant_id(0), "sec_1").await.unwrap());
}

async fn of_two_writers_of_the_same_version_one_wins(database: Database) {
    let store = database.open().await;
    let mut row = secret("sec_1", 0, "key");
    let inserted = store.insert_secret(&row, 9).await.unwrap();
    assert_eq!(inserted, Inserted::Yes);
    row.version = 2;
    row.sealed = "second".into();
    assert!(store.update_secret(&row).await.unwrap());
    assert!(!store.update_secret(&row).await.unwrap());
    let found = store.secret(&tenant_id(0), "key").await.unwrap();
    assert_eq!(found, Some(row));
}

async fn what_no_name_can_be_is_not_found(database: Database) {
    let store = database.open().await;
    for name in ["", "ab\0c", "\0", "'; --", "\u{fffd}"] {
        assert_eq!(store.secret(&tenant_id(0), name).await.unwrap(), None);
        assert_eq!(store.volume(name).await.unwrap(), None);
    }
}

async fn a_volume_has_one_name_per_tenant(database: Database) {
    let store = database.open().await;
    let row = volume("v1", "data");
    let insert = async |row| store.insert_volume(&row, 9).await.unwrap();
    assert_eq!(insert(row.clone()).await, Inserted::Yes);
    let again = volume("v2", "data");
    assert_eq!(insert(again).await, Inserted::NameTaken);
    assert_eq!(store.volume("v1").await.unwrap(), Some(row.clone()));
    assert_eq!(store.volumes(&tenant_id(0)).await.unwrap(), [row]);
    assert!(store.volumes(&tenant_id(1)).await.unwrap().is_empty());
    assert_eq!(store.volume_ids().await.unwrap(), ["v1"]);
    store.delete_volume("v1").await.unwrap();
    assert_eq!(store.volume("v1").await.unwrap(), None);
}

async fn a_tenant_has_only_as_many_secrets_and_volumes_as_it_may(database: Database) {
    let store = database.open().await;
    for (number, expected) in [Inserted::Yes, Inserted::Yes, Inserted::Full]
        .into_iter()
        .enumerate()
    {
        let name = format!("n{number}");
        let secret = secret(&name, 0, &name);
        let inserted = store.insert_secret(&secret, 2).await.unwrap();
        assert_eq!(inserted, expected);
        let volume = volume(&name, &name);
        let inserted = store.insert_volume(&volume, 2).await.unwrap();
        assert_eq!(inserted, expected);
    }
    let others = secret("other", 1, "n0");
    let inserted = store.insert_secret(&others, 2).await.unwrap();
    assert_eq!(inserted, Inserted::Yes, "another tenant's do not count");
    let taken = volume("another", "n0");
    let inserted = store.insert_volume(&taken, 2).await.unwrap();
    assert_eq!(inserted, Inserted::NameTaken, "which says more than full");
    store.delete_volume("n0").await.unwrap();
    let inserted = store.insert_volume(&taken, 2).await.unwrap();
    assert_eq!(inserted, Inserted::Yes);
}

async fn events_are_filtered_ordered_and_pruned(database: Database) {
    let store = database.open().await;
    let all = [
        event(0, "created", "ia", 10),
        event(1, "paused", "ia", 10),
        event(2, "created", "ib", 20),
        event(3, "killed", "ia", 30),
    ];
    store.insert_events(&all).await.unwrap();
    let find = async |filter: EventFilter| -> Vec<i64> {
        let found = store.events(&tenant_id(0), &filter).await.unwrap();
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
    let others = store.events(&tenant_id(1), &base).await.unwrap();
    assert!(others.is_empty());

    assert_eq!(store.prune_events(UnixMillis(11), 10).await.unwrap(), 2);
    assert_eq!(store.prune_events(UnixMillis(0), 0).await.unwrap(), 1);
    assert_eq!(find(base).await, [3]);
}

async fn a_webhook_is_replaced_by_its_id(database: Database) {
    let store = database.open().await;
    let mut row = WebhookRow {
        id: "w".into(),
        tenant: tenant_id(0),
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

async fn lives_and_rests_are_those_of_the_window(database: Database) {
    let store = database.open().await;
    for (id, from, end) in [
        ("igone", 1, Some((5, EndReason::Killed))),
        ("ifailed", 10, Some((11, EndReason::CreateFailed))),
        ("iended", 10, Some((30, EndReason::Expired))),
        ("ilives", 20, None),
        ("ilater", 99, None),
    ] {
        let row = SandboxRow {
            id: id.parse().unwrap(),
            tenant: tenant_id(0),
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
    let run_spans = store
        .run_spans(&tenant_id(0), UnixMillis(6), UnixMillis(50), 10)
        .await
        .unwrap();
    let expected = [("ilives", 20, None), ("iended", 10, Some(30))];
    assert_eq!(
        run_spans,
        expected.map(|(id, from, to): (&str, u64, Option<u64>)| RunSpan {
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
    let pause_changes = store
        .pause_changes(&tenant_id(0), UnixMillis(50), 10)
        .await
        .unwrap();
    assert_eq!(
        pause_changes,
        [(22, true), (24, false)].map(|(at, paused)| PauseChange {
            sandbox: "ilives".parse().unwrap(),
            at: UnixMillis(at),
            paused,
        })
    );
}
