use std::{os::unix::fs::MetadataExt, path::Path};

use soulbox_image::{Credentials, ImageConfig};
use soulbox_types::Secret;

use crate::{
    image::{INDEX, Layer, TestImage, noise, sha256, tar},
    server::{Reply, Server},
    store::{Log, TestStore, config},
};

fn text(layer: &Path, name: &str) -> String {
    std::fs::read_to_string(layer.join(name)).unwrap()
}

#[tokio::test]
async fn an_image_arrives_with_its_layers_in_order_and_its_settings() {
    let server = Server::honest().await;
    let image = TestImage::new(vec![
        Layer::gzip(&tar(&[("etc/one", b"1")])),
        Layer::zstd(&tar(&[("etc/two", b"2")])),
        Layer::plain(&tar(&[("etc/three", b"3")])),
    ]);
    server.push("team/app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let log = Log::default();
    let reference = server.reference("team/app");
    let pulled = test
        .store
        .pull(&reference, None, false, &log)
        .await
        .unwrap();
    assert_eq!(pulled.digest, image.digest());
    let names = ["etc/one", "etc/two", "etc/three"];
    for ((layer, name), content) in pulled.layers.iter().zip(names).zip(["1", "2", "3"]) {
        assert_eq!(text(layer, name), content);
    }
    let variable = ("GREETING".to_owned(), "hello=world".to_owned());
    assert_eq!(pulled.env.last(), Some(&variable));
    assert_eq!(
        (pulled.user.as_str(), pulled.workdir.as_str()),
        ("app", "/srv")
    );
    assert_eq!(pulled.entrypoint, ["/bin/entry"]);
    assert_eq!(pulled.cmd, ["serve"]);
    assert_eq!(pulled.exposed_ports, ["8080/tcp"]);
    let size: usize = image.layers.iter().map(|layer| layer.blob.len()).sum();
    assert_eq!(*log.last.lock().unwrap(), (size as u64, size as u64));
    assert!(
        log.lines
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("Pulling"))
    );
    test.assert_no_leftovers();
    assert_eq!(test.store.layers().len(), 3);
}

#[tokio::test]
async fn what_is_known_and_whole_needs_no_network() {
    let server = Server::honest().await;
    let image = TestImage::of(&[("a", b"b")]);
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    let first = test.store.pull(&reference, None, false, &()).await.unwrap();
    let asked = server.seen().len();
    let second = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!((first, server.seen().len()), (second.clone(), asked));
    // Also after a restart, with the registry gone.
    drop(server);
    let reopened = soulbox_image::ImageStore::open(test.images(), ImageConfig::default()).unwrap();
    let third = reopened.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(third, second);
    // Somebody with other credentials may see something else: that has to be asked.
    let somebody = Credentials::Basic {
        username: "u".into(),
        password: Secret::new("p"),
    };
    assert!(
        reopened
            .pull(&reference, Some(&somebody), false, &())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn refreshing_finds_a_moved_tag_and_keeps_layers_that_are_here() {
    let server = Server::honest().await;
    let base = Layer::gzip(&tar(&[("base", b"b")]));
    server.push("app", &TestImage::new(vec![base.clone()]));
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    test.store.pull(&reference, None, false, &()).await.unwrap();
    let newer = TestImage::new(vec![base.clone(), Layer::gzip(&tar(&[("new", b"n")]))]);
    server.push("app", &newer);
    let same = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(same.layers.len(), 1);
    let moved = test.store.pull(&reference, None, true, &()).await.unwrap();
    assert_eq!((moved.layers.len(), moved.digest), (2, newer.digest()));
    assert_eq!(server.count(&base.digest()), 1);
}

#[tokio::test]
async fn an_index_leads_to_this_machines_image() {
    let server = Server::honest().await;
    let image = TestImage::of(&[("a", b"b")]);
    server.push("app", &image);
    server.put("/v2/app/manifests/multi", &image.index());
    let test = TestStore::trusting(&[server.host()]);
    let reference = format!("{}:multi", server.reference("app"));
    let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(pulled.digest, image.digest());
    let accepted = server.seen()[0].header("accept").unwrap().to_owned();
    assert!(accepted.contains(INDEX));
}

#[tokio::test]
async fn a_reference_by_digest_gets_exactly_that() {
    let server = Server::honest().await;
    let image = TestImage::of(&[("a", b"b")]);
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let exact = format!("{}@{}", server.reference("app"), image.digest());
    test.store.pull(&exact, None, false, &()).await.unwrap();
    let other = TestImage::of(&[("a", b"c")]);
    let wrong = format!("{}@{}", server.reference("app"), other.digest());
    server.put(
        &format!("/v2/app/manifests/{}", other.digest()),
        &image.manifest,
    );
    let error = test.store.pull(&wrong, None, false, &()).await.unwrap_err();
    assert!(error.to_string().contains("digest"), "{error}");
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_the_registry_when_it_has_nothing() {
    let mirror = Server::honest().await;
    let image = TestImage::of(&[("a", b"b")]);
    mirror.push("library/debian", &image);
    let own = Server::honest().await;
    own.push("only/here", &image);
    let base = |server: &Server| format!("http://{}", server.host());
    let config = ImageConfig {
        mirrors: [
            ("docker.io".to_owned(), base(&mirror)),
            (own.host(), base(&mirror)),
        ]
        .into(),
        ..config(&[own.host()])
    };
    let test = TestStore::with(config);
    let credentials = Credentials::Basic {
        username: "u".into(),
        password: Secret::new("p"),
    };
    let pulled = test
        .store
        .pull("debian", Some(&credentials), false, &())
        .await;
    assert_eq!(pulled.unwrap().digest, image.digest());
    let elsewhere = own.reference("only/here");
    test.store.pull(&elsewhere, None, false, &()).await.unwrap();
    assert!(mirror.count("/v2/only/here/manifests") > 0);
    assert!(
        mirror
            .seen()
            .iter()
            .all(|seen| seen.header("authorization").is_none())
    );
}

#[tokio::test]
async fn redirects_to_a_store_for_blobs_are_followed_without_the_authorization() {
    let blobs = Server::honest().await;
    let image = TestImage::of(&[("a", &noise(100_000, 1))]);
    blobs.push("app", &image);
    let elsewhere = blobs.host();
    let registry = Server::start(move |seen| match seen.header("authorization") {
        None => Some(Reply::Full(
            401,
            vec![("www-authenticate", "Basic realm=\"x\"".into())],
            vec![],
        )),
        Some(_) if seen.path.contains("/blobs/") => {
            let to = format!("http://{elsewhere}{}", seen.path);
            Some(Reply::Full(307, vec![("location", to)], vec![]))
        }
        Some(_) => None,
    })
    .await;
    registry.push("app", &image);
    let test = TestStore::trusting(&[registry.host(), blobs.host()]);
    let credentials = Credentials::Basic {
        username: "u".into(),
        password: Secret::new("p"),
    };
    let reference = registry.reference("app");
    let pulled = test
        .store
        .pull(&reference, Some(&credentials), false, &())
        .await;
    assert_eq!(pulled.unwrap().digest, image.digest());
    assert_eq!(blobs.count(&sha256(&image.config)), 1);
    assert!(
        blobs
            .seen()
            .iter()
            .all(|seen| seen.header("authorization").is_none())
    );
}

#[tokio::test]
async fn a_layer_that_comes_twice_is_stacked_once_at_its_upper_place() {
    let server = Server::honest().await;
    let twice = Layer::gzip(&tar(&[("twice", b"2")]));
    let between = Layer::gzip(&tar(&[("between", b"b")]));
    let image = TestImage::new(vec![twice.clone(), between, twice]);
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(pulled.layers.len(), 2);
    assert_eq!(text(&pulled.layers[1], "twice"), "2");
}

#[tokio::test]
async fn nothing_of_lower_layers_is_stacked_below_an_opaque_root() {
    let server = Server::honest().await;
    let image = TestImage::new(vec![
        Layer::gzip(&tar(&[("old", b"o")])),
        Layer::gzip(&tar(&[(".wh..wh..opq", b""), ("new", b"n")])),
    ]);
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(pulled.layers.len(), 1);
    assert_eq!(text(&pulled.layers[0], "new"), "n");
}

#[tokio::test]
async fn directories_that_a_layer_only_passes_through_keep_their_owner_and_mode() {
    let server = Server::honest().await;
    let image = TestImage::new(vec![
        Layer::gzip(&described(&[
            ("home/", 0o755, 0),
            ("home/app/", 0o2750, 1000),
        ])),
        Layer::gzip(&tar(&[("home/app/new", b"n"), ("usr/share/doc", b"d")])),
    ]);
    server.push("app", &image);
    let usual = TestImage::new(vec![
        Layer::gzip(&described(&[("usr/", 0o755, 0)])),
        Layer::gzip(&tar(&[("usr/share/doc", b"d")])),
    ]);
    server.push("usual", &usual);
    let test = TestStore::trusting(&[server.host()]);
    let pulled = test
        .store
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
    let [_, _, top] = &pulled.layers[..] else {
        panic!("one more layer: {:?}", pulled.layers);
    };
    for (name, mode, uid) in [("home", 0o755, 0), ("home/app", 0o2750, 1000)] {
        let found = std::fs::metadata(top.join(name)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (mode, uid), "{name}");
    }
    assert_eq!(crate::store::list(top), ["home"]);
    // The same again, from memory; and nothing where nothing is wrong.
    let again = test
        .store
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
    assert_eq!(again, pulled);
    let usual = test
        .store
        .pull(&server.reference("usual"), None, false, &())
        .await
        .unwrap();
    assert_eq!(usual.layers.len(), 2);
    test.assert_no_leftovers();
}

/// An archive with these directories.
fn described(directories: &[(&str, u32, u64)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, mode, owner) in directories {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(*mode);
        header.set_uid(*owner);
        header.set_gid(*owner);
        header.set_size(0);
        header.set_mtime(1_000_000_000);
        header.set_cksum();
        builder.append(&header, std::io::empty()).unwrap();
    }
    builder.into_inner().unwrap()
}
