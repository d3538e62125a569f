//! Layers that want out, or want everything.

use std::path::Path;

use crate::{
    image::{Layer, TestImage, gzip, sha256, tar},
    server::Server,
    store::{TestStore, config},
};

/// The error of pulling an image with this one layer.
async fn refused(layer: Layer) -> String {
    let server = Server::honest().await;
    server.push("app", &TestImage::new(vec![layer]));
    let mut config = config(&[server.host()]);
    config.max_layer_bytes = 8 << 20;
    let test = TestStore::with(config);
    test.refused(&server.reference("app")).await
}

fn link(kind: tar::EntryType, name: &str, target: &str, then: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(0o777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    builder.append(&header, std::io::empty()).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(512);
    bytes.extend(tar(then));
    bytes
}

#[tokio::test]
async fn names_that_climb_out_fail_the_pull() {
    for name in [
        "../../soulbox-out",
        "a/../../../soulbox-out",
        "a/.wh...",
        ".wh..",
    ] {
        let error = refused(Layer::gzip(&tar(&[("good", b"g"), (name, b"x")]))).await;
        assert!(error.contains("leads out"), "{name}: {error}");
    }
}

#[tokio::test]
async fn writing_through_a_link_that_leads_out_fails_the_pull() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    for target in [target, "../../../../../../../../../../../tmp"] {
        let layer = link(
            tar::EntryType::Symlink,
            "door",
            target,
            &[("door/in", b"x")],
        );
        let error = refused(Layer::gzip(&layer)).await;
        assert!(error.contains("leads out"), "{error}");
    }
    assert_eq!(crate::store::list(outside.path()), [""; 0]);
    assert!(!Path::new("/tmp/in").exists());
}

#[tokio::test]
async fn hard_links_to_the_hosts_files_fail_the_pull() {
    for target in ["../../../../../../etc/passwd", "/etc/passwd"] {
        let layer = link(
            tar::EntryType::Link,
            "mine",
            target,
            &[("mine", b"root::0:0")],
        );
        let error = refused(Layer::gzip(&layer)).await;
        assert!(error.contains("hard link"), "{error}");
    }
}

#[tokio::test]
async fn absolute_names_stay_inside() {
    let server = Server::honest().await;
    server.push("app", &TestImage::of(&[("/soulbox-absolute", b"x")]));
    let test = TestStore::trusting(&[server.host()]);
    let pulled = test
        .store
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
    assert!(pulled.layers[0].join("soulbox-absolute").exists());
    assert!(!Path::new("/soulbox-absolute").exists());
}

#[tokio::test]
async fn a_bomb_is_not_unpacked_to_its_end() {
    let bomb = Layer::gzip(&tar(&[("zeros", &vec![0; 64 << 20])]));
    assert!(bomb.blob.len() < 1 << 20);
    let error = refused(bomb).await;
    assert!(error.contains("unpacks to more than"), "{error}");
}

#[tokio::test]
async fn a_truncated_layer_fails_the_pull() {
    let whole = tar(&[("a", &[7; 5000])]);
    let mut blob = gzip(&whole);
    blob.truncate(blob.len() - 6);
    let layer = Layer {
        blob,
        diff_id: sha256(&whole),
    };
    let error = refused(layer).await;
    assert!(error.contains("damaged"), "{error}");
}

#[tokio::test]
async fn what_is_no_archive_fails_the_pull() {
    for blob in [vec![b'x'; 4096], b"BZh91AY".to_vec(), gzip(b"hello")] {
        let layer = Layer {
            diff_id: sha256(&blob),
            blob,
        };
        refused(layer).await;
    }
}

#[tokio::test]
async fn one_bad_layer_keeps_the_image_but_not_the_good_layers_from_being_used() {
    let server = Server::honest().await;
    let good = Layer::gzip(&tar(&[("good", b"g")]));
    let bad = Layer::gzip(&tar(&[("../bad", b"b")]));
    server.push("bad", &TestImage::new(vec![good.clone(), bad]));
    server.push("good", &TestImage::new(vec![good]));
    let test = TestStore::trusting(&[server.host()]);
    let ended = test
        .store
        .pull(&server.reference("bad"), None, false, &())
        .await;
    assert!(ended.is_err());
    test.wait_for_no_leftovers().await;
    test.assert_no_leftovers();
    test.store
        .pull(&server.reference("good"), None, false, &())
        .await
        .unwrap();
}
