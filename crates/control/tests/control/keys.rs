//! API keys.

use super::*;

#[tokio::test]
async fn the_first_start_makes_a_key_that_later_starts_keep() {
    let mut world = world().await;
    world.restart().await;
    assert!(
        world
            .control
            .ensure_default_tenant()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        world.control.authenticate(world.key.expose()).unwrap(),
        world.tenant
    );
}

#[tokio::test]
async fn a_deleted_key_is_refused_at_once_and_the_last_one_stays() {
    let World {
        control,
        tenant,
        key,
        folder: _folder,
        ..
    } = world().await;
    let second = control.create_key(&tenant, " ci ").await.unwrap();
    assert_eq!(second.info.name, "ci");
    assert!(control.authenticate(second.key.expose()).is_ok());
    let first = control.list_keys(&tenant)[0].clone();
    control.delete_key(&tenant, &first.id).await.unwrap();
    assert!(matches!(
        control.authenticate(key.expose()),
        Err(Error::Unauthenticated)
    ));
    let last = control.delete_key(&tenant, &second.info.id).await;
    assert!(matches!(last, Err(Error::LastKey)));
}

#[tokio::test]
async fn keys_changed_in_the_store_itself_are_noticed() {
    let world = world().await;
    let beside = store(world.folder.path()).await;
    let first = beside.keys().await.unwrap().remove(0);
    let spare = KeyRow {
        id: "spare".into(),
        // Of 20 zero bytes.
        hash: "$sha256$3kfJsn640wDbtfLDU+Yyw5MmLPBjQMT6fxtAxMvTb5A".into(),
        ..first.clone()
    };
    beside.insert_key(&spare).await.unwrap();
    beside.delete_key(&first.id).await.unwrap();
    let zeros = format!("e2b_{}", "0".repeat(40));
    let accepted = async || world.control.authenticate(&zeros).is_ok();
    eventually("the new key works", accepted).await;
    assert!(world.control.authenticate(world.key.expose()).is_err());
}

#[tokio::test]
async fn the_use_of_a_key_is_remembered_across_a_restart() {
    let mut world = world().await;
    world.control.authenticate(world.key.expose()).unwrap();
    world.control.drain(Duration::from_secs(1)).await;
    world.restart().await;
    assert!(
        world.control.list_keys(&world.tenant)[0]
            .last_used_at
            .is_some()
    );
}
