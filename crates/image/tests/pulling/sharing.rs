//! Several who want the same, and one who should not get it.

use std::sync::{Arc, Mutex};

use crate::{
    image::{Layer, TestImage, noise, sha256, tar},
    server::{Reply, Server},
    store::TestStore,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_of_the_same_at_once_share_one_download() {
    let server = Server::honest().await;
    let shared = Layer::gzip(&tar(&[("shared", &noise(1 << 20, 3))]));
    let names = ["one", "two", "three", "four"];
    for name in names {
        let own = Layer::gzip(&tar(&[("own", name.as_bytes())]));
        server.push(name, &TestImage::new(vec![shared.clone(), own]));
    }
    let test = TestStore::trusting(&[server.host()]);
    let pulls = names.map(|name| {
        let (store, reference) = (test.store.clone(), server.reference(name));
        tokio::spawn(async move { store.pull(&reference, None, false, &()).await })
    });
    for pull in pulls {
        pull.await.unwrap().unwrap();
    }
    assert_eq!(server.count(&shared.digest()), 1);
    assert_eq!(test.store.layers().len(), 5);
    test.assert_no_leftovers();
}

#[tokio::test]
async fn a_pull_that_is_given_up_leaves_nothing_and_does_not_stop_the_next() {
    let image = TestImage::of(&[("big", &noise(2 << 20, 5))]);
    let (digest, blob) = (image.layers[0].digest(), image.layers[0].blob.clone());
    let stalls = Arc::new(Mutex::new(true));
    let (reached, mut stalled) = tokio::sync::mpsc::unbounded_channel();
    let script = Arc::clone(&stalls);
    let server = Server::start(move |seen| {
        if !seen.path.contains(&digest) || !*script.lock().unwrap() {
            return None;
        }
        reached.send(()).unwrap();
        Some(Reply::Stall(blob.clone(), 1 << 20))
    })
    .await;
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    let pull = test.store.pull(&reference, None, false, &());
    tokio::select! {
        ended = pull => panic!("it cannot end: {ended:?}"),
        _ = stalled.recv() => {}
    }
    test.wait_for_no_leftovers().await;
    test.assert_empty();
    *stalls.lock().unwrap() = false;
    test.store.pull(&reference, None, false, &()).await.unwrap();
}

/// The digest of a layer's content is in every image's configuration, which anybody can write.
#[tokio::test]
async fn naming_a_layer_that_somebody_else_has_does_not_give_it() {
    let private = Server::honest().await;
    let layer = Layer::gzip(&tar(&[("secret", b"s")]));
    private.push("app", &TestImage::new(vec![layer.clone()]));
    let thief = Server::honest().await;
    let claim = Layer {
        blob: b"no idea".to_vec(),
        diff_id: layer.diff_id.clone(),
    };
    thief.push("app", &TestImage::new(vec![claim]));
    let test = TestStore::trusting(&[private.host(), thief.host()]);
    let honest = private.reference("app");
    let pulled = test.store.pull(&honest, None, false, &()).await.unwrap();
    let stolen = test
        .store
        .pull(&thief.reference("app"), None, false, &())
        .await;
    let error = stolen.unwrap_err().to_string();
    assert!(error.contains(&sha256(b"no idea")), "{error}");
    // Who has the content gets it, from wherever, and it is stored once.
    let friend = Server::honest().await;
    friend.push("app", &TestImage::new(vec![layer]));
    let hosts = [private.host(), friend.host()];
    let config = crate::store::config(&hosts);
    let store = soulbox_image::ImageStore::open(test.images(), config).unwrap();
    let same = store
        .pull(&friend.reference("app"), None, false, &())
        .await
        .unwrap();
    assert_eq!(same.layers, pulled.layers);
}
