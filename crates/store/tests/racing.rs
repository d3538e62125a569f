//! Two servers that want the same at the same moment: as if one had come after the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::Arc;

use soulbox_store::{BuildRow, Inserted, Result, Started, Store, TemplateRow};
use soulbox_types::{EndReason, TemplateId, UnixMillis};
use support::{
    Database,
    rows::{
        build, end, event, id, key, record, sandbox, secret, snapshot, snapshot_build,
        snapshot_tag, template, template_tag, tenant, tenant_id, volume,
    },
};
use tokio::sync::Barrier;

support::on_both![
    of_many_requests_with_one_key_exactly_one_is_first,
    of_many_requests_with_an_old_key_exactly_one_is_first,
    a_request_whose_forerunner_is_just_forgotten_is_first_or_repeated,
    of_many_tenants_with_one_slug_exactly_one_is_made,
    of_many_secrets_and_volumes_with_one_name_exactly_one_is_made,
    of_many_for_the_last_place_exactly_one_gets_it,
    of_many_writers_of_one_version_exactly_one_wins,
    of_many_starts_of_a_build_exactly_one_starts_it,
    of_many_builds_of_a_new_template_all_are_made,
    of_many_ends_of_a_sandbox_exactly_one_counts,
    tags_that_are_moved_together_end_together,
    a_snapshot_that_is_deleted_while_it_grows_leaves_no_image_behind,
    what_is_pruned_twice_is_counted_once,
    events_that_are_written_twice_are_there_once,
];

const RACERS: usize = 16;

/// Half of them through one server, half through another, all at once; what each of them got.
async fn race<T, W>(database: &Database, each: impl Fn(Store, usize) -> W) -> Vec<T>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let stores = [database.connect().await, database.connect().await];
    let start = Arc::new(Barrier::new(RACERS));
    let racers = (0..RACERS).map(|number| {
        let work = each(stores[number % 2].clone(), number);
        let start = Arc::clone(&start);
        tokio::spawn(async move {
            start.wait().await;
            work.await
        })
    });
    let racers: Vec<_> = racers.collect();
    let mut got = Vec::new();
    for racer in racers {
        got.push(racer.await.unwrap().unwrap());
    }
    got
}

fn count<T: PartialEq>(got: &[T], wanted: &T) -> usize {
    got.iter().filter(|each| *each == wanted).count()
}

async fn of_many_requests_with_one_key_exactly_one_is_first(database: Database) {
    let store = database.open().await;
    let got = race(&database, |store, number| async move {
        let row = sandbox(&format!("i{number}"), 10);
        let (record, forget_before) = (record(), UnixMillis(0));
        store
            .insert_sandbox_once(&row, &record, forget_before)
            .await
    });
    let got = got.await;
    assert_eq!(count(&got, &Started::First), 1);
    let [made] = &store.live_sandboxes().await.unwrap()[..] else {
        panic!("not one")
    };
    for started in got {
        if let Started::Repeated(row) = started {
            assert_eq!(row.sandbox, made.id);
        }
    }
}

async fn of_many_requests_with_an_old_key_exactly_one_is_first(database: Database) {
    let store = database.open().await;
    let (record, old) = (record(), sandbox("iold", 10));
    let first = store.insert_sandbox_once(&old, &record, UnixMillis(0));
    assert_eq!(first.await.unwrap(), Started::First);
    let got = race(&database, |store, number| async move {
        let row = sandbox(&format!("i{number}"), 20);
        let (record, forget_before) = (support::rows::record(), UnixMillis(11));
        store
            .insert_sandbox_once(&row, &record, forget_before)
            .await
    });
    assert_eq!(count(&got.await, &Started::First), 1);
    assert_eq!(store.live_sandboxes().await.unwrap().len(), 2);
}

async fn a_request_whose_forerunner_is_just_forgotten_is_first_or_repeated(database: Database) {
    let store = database.open().await;
    let got = race(&database, |store, number| async move {
        let mut firsts = 0;
        for round in 0..10 {
            let row = sandbox(&format!("i{number}r{round}"), 10);
            let (record, forget_before) = (record(), UnixMillis(0));
            let started = store
                .insert_sandbox_once(&row, &record, forget_before)
                .await?;
            if started == Started::First {
                store.forget_idempotency(&row.id).await?;
                firsts += 1;
            }
        }
        Ok(firsts)
    });
    let firsts: usize = got.await.iter().sum();
    assert!(firsts > 0);
    assert_eq!(store.live_sandboxes().await.unwrap().len(), firsts);
    assert_eq!(store.open_idempotency().await.unwrap(), []);
}

async fn of_many_tenants_with_one_slug_exactly_one_is_made(database: Database) {
    let store = database.connect().await;
    let got = race(&database, |store, number| async move {
        let mut tenant = tenant(0, "wanted");
        tenant.id = format!("01890a5d-ac96-774b-bcce-b302099a80{number:02x}")
            .parse()
            .unwrap();
        let mut key = key(0, &format!("k{number}"));
        key.tenant = tenant.id.clone();
        store.insert_tenant_with_key(&tenant, &key).await
    });
    assert_eq!(count(&got.await, &true), 1);
    let (tenants, keys) = (store.tenants().await.unwrap(), store.keys().await.unwrap());
    assert_eq!((tenants.len(), keys.len()), (1, 1));
    assert_eq!(keys[0].tenant, tenants[0].id);
}

async fn of_many_secrets_and_volumes_with_one_name_exactly_one_is_made(database: Database) {
    let store = database.open().await;
    let got = race(&database, |store, number| async move {
        let id = format!("id{number}");
        let (secret, volume) = (secret(&id, 0, "wanted"), volume(&id, "wanted"));
        let secret = store.insert_secret(&secret, 100).await?;
        let volume = store.insert_volume(&volume, 100).await?;
        Ok((secret, volume))
    });
    let (secrets, volumes): (Vec<_>, Vec<_>) = got.await.into_iter().unzip();
    for got in [secrets, volumes] {
        assert_eq!(count(&got, &Inserted::Yes), 1);
        assert_eq!(count(&got, &Inserted::NameTaken), RACERS - 1);
    }
    assert_eq!(store.secrets(&tenant_id(0)).await.unwrap().len(), 1);
    assert_eq!(store.volumes(&tenant_id(0)).await.unwrap().len(), 1);
}

async fn of_many_for_the_last_place_exactly_one_gets_it(database: Database) {
    const MOST: usize = 3;
    let store = database.open().await;
    for name in ["there", "too"] {
        store
            .insert_secret(&secret(name, 0, name), MOST)
            .await
            .unwrap();
        store
            .insert_volume(&volume(name, name), MOST)
            .await
            .unwrap();
    }
    let got = race(&database, |store, number| async move {
        let name = format!("n{number}");
        let (secret, volume) = (secret(&name, 0, &name), volume(&name, &name));
        let secret = store.insert_secret(&secret, MOST).await?;
        let volume = store.insert_volume(&volume, MOST).await?;
        Ok((secret, volume))
    });
    let (secrets, volumes): (Vec<_>, Vec<_>) = got.await.into_iter().unzip();
    for got in [secrets, volumes] {
        assert_eq!(count(&got, &Inserted::Yes), 1);
        assert_eq!(count(&got, &Inserted::Full), RACERS - 1);
    }
    assert_eq!(store.secrets(&tenant_id(0)).await.unwrap().len(), MOST);
    assert_eq!(store.volumes(&tenant_id(0)).await.unwrap().len(), MOST);
}

async fn of_many_writers_of_one_version_exactly_one_wins(database: Database) {
    let store = database.open().await;
    let first = secret("sec", 0, "key");
    store.insert_secret(&first, 9).await.unwrap();
    let got = race(&database, |store, number| async move {
        let mut row = secret("sec", 0, "key");
        row.version = 2;
        row.sealed = format!("by {number}");
        Ok((number, store.update_secret(&row).await?))
    });
    let got = got.await;
    let winners: Vec<_> = got.iter().filter(|(_, won)| *won).collect();
    let [(winner, _)] = winners[..] else {
        panic!("{winners:?}")
    };
    let row = store.secret(&tenant_id(0), "key").await.unwrap().unwrap();
    assert_eq!((row.version, row.sealed), (2, format!("by {winner}")));
}

async fn of_many_starts_of_a_build_exactly_one_starts_it(database: Database) {
    let store = database.open().await;
    store
        .insert_build(&template(), &build("b1", 4))
        .await
        .unwrap();
    let got = race(&database, |store, number| async move {
        let request = format!("by {number}");
        store.start_build("b1", &request, UnixMillis(6)).await
    });
    let got = got.await;
    assert_eq!(count(&got, &true), 1);
    let winner = got.iter().position(|won| *won).unwrap();
    let request = store.build_request("b1").await.unwrap();
    assert_eq!(request, Some(format!("by {winner}")));
}

async fn of_many_builds_of_a_new_template_all_are_made(database: Database) {
    let store = database.open().await;
    race(&database, |store, number| async move {
        let build: BuildRow = build(&format!("b{number}"), 4);
        store.insert_build(&template(), &build).await
    })
    .await;
    assert_eq!(store.templates().await.unwrap(), [template()]);
    assert_eq!(store.builds().await.unwrap().len(), RACERS);
    // Of two templates with one name the second is refused, whoever writes it.
    let other = TemplateRow {
        id: "another".parse().unwrap(),
        ..template()
    };
    assert!(store.insert_template(&other).await.is_err());
}

async fn of_many_ends_of_a_sandbox_exactly_one_counts(database: Database) {
    let store = database.open().await;
    store.insert_sandbox(&sandbox("i1", 1)).await.unwrap();
    race(&database, |store, number| async move {
        let mut end = end(10 + number as u64, EndReason::Killed);
        end.detail = number.to_string();
        store.end_sandbox(&id("i1"), &end).await
    })
    .await;
    let end = store
        .sandbox(&id("i1"))
        .await
        .unwrap()
        .unwrap()
        .end
        .unwrap();
    let number: u64 = end.detail.parse().unwrap();
    assert_eq!(end.at, UnixMillis(10 + number));
}

/// Each moves both tags, half of them in one order and half in the other.
async fn tags_that_are_moved_together_end_together(database: Database) {
    let store = database.open().await;
    let of = TemplateId::random();
    for number in 0..RACERS {
        let build = build(&format!("b{number}"), 4);
        store.insert_build(&template(), &build).await.unwrap();
        let id = format!("b{number}");
        let build = snapshot_build(&id, &of, &TemplateId::random());
        let tag = snapshot_tag(&of, "first", &id);
        let snapshot = snapshot(&of, "snap");
        let inserted = store.insert_snapshot_build(&snapshot, &build, &tag);
        inserted.await.unwrap();
    }
    race(&database, |store, number| {
        let of = of.clone();
        async move {
            let build = format!("b{number}");
            let mut names = ["left", "right"];
            if number % 2 == 1 {
                names.reverse();
            }
            let tags = names.map(|name| template_tag(name, &build, 7));
            store.tag_template(&tags).await?;
            let tags = names.map(|name| snapshot_tag(&of, name, &build));
            store.tag_snapshot(&tags).await
        }
    })
    .await;
    let tags = store.template_tags().await.unwrap();
    assert_eq!(tags.len(), 2);
    assert_eq!(tags[0].build, tags[1].build);
    let tags = store.snapshot_tags().await.unwrap();
    let of = |name| {
        tags.iter()
            .find(|tag| tag.tag == name)
            .unwrap()
            .build
            .clone()
    };
    assert_eq!(of("left"), of("right"));
}

async fn a_snapshot_that_is_deleted_while_it_grows_leaves_no_image_behind(database: Database) {
    let store = database.open().await;
    let template = TemplateId::random();
    let images: Vec<_> = (0..RACERS).map(|_| TemplateId::random()).collect();
    race(&database, |store, number| {
        let (template, image) = (template.clone(), images[number].clone());
        async move {
            if number % 4 == 3 {
                return store.delete_snapshot(&template).await;
            }
            let id = format!("b{number}");
            let build = snapshot_build(&id, &template, &image);
            let tag = snapshot_tag(&template, &format!("t{}", number % 3), &id);
            let snapshot = snapshot(&template, "snap");
            store.doom_image(&image).await?;
            store.insert_snapshot_build(&snapshot, &build, &tag).await
        }
    })
    .await;
    let builds = store.snapshot_builds().await.unwrap();
    let doomed = store.doomed_images().await.unwrap();
    for (number, image) in images
        .iter()
        .enumerate()
        .filter(|(number, _)| number % 4 != 3)
    {
        let kept = builds.iter().any(|build| build.image == *image);
        assert!(kept != doomed.contains(image), "{number}: {kept}");
    }
    assert_eq!(
        builds.is_empty(),
        store.snapshots().await.unwrap().is_empty()
    );
}

async fn what_is_pruned_twice_is_counted_once(database: Database) {
    let store = database.open().await;
    for number in 0..50 {
        let row = sandbox(&format!("i{number}"), 10);
        store.insert_sandbox(&row).await.unwrap();
        let end = end(20, EndReason::Killed);
        store.end_sandbox(&row.id, &end).await.unwrap();
    }
    let got = race(&database, |store, _| async move {
        store.prune_sandboxes(UnixMillis(30)).await
    });
    assert_eq!(got.await.iter().sum::<u64>(), 50);
    let uses = store.template_use().await.unwrap();
    assert_eq!(uses.len(), 1);
    assert_eq!(uses[0].spawned, 50);
}

async fn events_that_are_written_twice_are_there_once(database: Database) {
    let store = database.open().await;
    race(&database, |store, number| async move {
        let mut events: Vec<_> = (0..20).map(|n| event(n, "created", "ia", 10)).collect();
        if number % 2 == 1 {
            events.reverse();
        }
        store.insert_events(&events).await
    })
    .await;
    let all = soulbox_store::EventFilter {
        limit: 1000,
        ..Default::default()
    };
    let events = store.events(&tenant_id(0), &all).await.unwrap();
    assert_eq!(events.len(), 20);
}
