use std::{collections::HashSet, time::Duration};

use soulbox_image::ImageStore;

use crate::{
    image::{Layer, TestImage, tar},
    server::Server,
    store::{TestStore, config, list},
};

#[tokio::test]
async fn layers_that_nobody_keeps_go_when_they_are_old() {
    let server = Server::honest().await;
    let shared = Layer::gzip(&tar(&[("shared", b"s")]));
    let image = TestImage::new(vec![shared.clone(), Layer::gzip(&tar(&[("a", b"a")]))]);
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();

    let nothing = HashSet::new();
    let young = test
        .store
        .collect(&nothing, Duration::from_hours(1))
        .unwrap();
    assert_eq!(young.len(), 0);

    let keep = HashSet::from([pulled.layers[0].clone()]);
    let removed = test.store.collect(&keep, Duration::ZERO).unwrap();
    assert_eq!(removed, [pulled.layers[1].clone()]);
    assert_eq!(test.store.layers(), [pulled.layers[0].clone()]);
    assert_eq!(list(&test.images().join("manifests")), [""; 0]);
    test.assert_no_leftovers();

    // What went is fetched again; what stayed is not.
    let again = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(again, pulled);
    assert_eq!(server.count(&shared.digest()), 1);
}

#[tokio::test]
async fn what_a_killed_process_left_unfinished_goes_at_the_next_start() {
    let test = TestStore::trusting(&[]);
    let half = test.images().join("tmp/layer-abc/root/etc");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("passwd"), "half").unwrap();
    ImageStore::open(test.images(), config(&[])).unwrap();
    test.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collecting_while_pulling_breaks_no_pull() {
    let server = Server::honest().await;
    let layers = (0..4).map(|n| Layer::gzip(&tar(&[("n", format!("{n}").as_bytes())])));
    let image = TestImage::new(layers.collect());
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let (store, reference) = (test.store.clone(), server.reference("app"));
    let pulls = tokio::spawn(async move {
        for _ in 0..15 {
            store.pull(&reference, None, false, &()).await.unwrap();
        }
    });
    while !pulls.is_finished() {
        let store = test.store.clone();
        let collect = move || store.collect(&HashSet::new(), Duration::ZERO).unwrap();
        tokio::task::spawn_blocking(collect).await.unwrap();
    }
    pulls.await.unwrap();
    test.assert_no_leftovers();
}
