use std::path::PathBuf;

use serde_json::json;

use crate::{
    image::{Layer, TestImage, gzip, sha256, tar},
    store::{Log, TestStore, config},
};

struct Archive {
    test: TestStore,
    folder: tempfile::TempDir,
}

impl Archive {
    fn new() -> Self {
        Self {
            test: TestStore::trusting(&[]),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("image.tar");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

#[tokio::test]
async fn a_plain_root_file_system_becomes_one_layer_named_by_its_content() {
    let root = tar(&[
        ("etc/hostname", b"box\n"),
        ("manifest.json", b"[]"),
        ("bin/sh", b"#"),
    ]);
    let archive = Archive::new();
    for bytes in [
        root.clone(),
        gzip(&root),
        zstd::encode_all(&root[..], 1).unwrap(),
    ] {
        let path = archive.write(&bytes);
        let log = Log::default();
        let image = archive.test.store.import_tar(&path, &log).await.unwrap();
        assert_eq!(image.digest, sha256(&root));
        assert_eq!(image.layers.len(), 1);
        let name = image.layers[0].join("etc/hostname");
        assert_eq!(std::fs::read_to_string(name).unwrap(), "box\n");
        assert_eq!(
            *log.last.lock().unwrap(),
            (bytes.len() as u64, bytes.len() as u64)
        );
    }
    assert_eq!(archive.test.store.layers().len(), 1);
    archive.test.assert_no_leftovers();
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap())
}

#[tokio::test]
async fn an_oci_archive_becomes_its_image() {
    let image = TestImage::new(vec![
        Layer::gzip(&tar(&[("one", b"1")])),
        Layer::zstd(&tar(&[("two", b"2")])),
    ]);
    let config_digest = sha256(&image.config);
    let names: Vec<String> = image
        .layers
        .iter()
        .map(|layer| blob(&layer.digest()))
        .collect();
    let bytes = tar(&[
        ("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#),
        ("index.json", &image.index()),
        (&blob(&image.digest()), &image.manifest),
        (&blob(&config_digest), &image.config),
        (&names[0], &image.layers[0].blob),
        (&names[1], &image.layers[1].blob),
    ]);
    for bytes in [bytes.clone(), gzip(&bytes)] {
        let archive = Archive::new();
        let path = archive.write(&bytes);
        let imported = archive.test.store.import_tar(&path, &()).await.unwrap();
        assert_eq!(imported.digest, image.digest());
        assert_eq!((imported.layers.len(), imported.user.as_str()), (2, "app"));
        assert!(imported.layers[1].join("two").exists());
        archive.test.assert_no_leftovers();
    }
}

#[tokio::test]
async fn what_docker_saves_becomes_its_image() {
    let image = TestImage::new(vec![
        Layer::plain(&tar(&[("one", b"1")])),
        Layer::plain(&tar(&[("two", b"2")])),
    ]);
    let manifest = json!([{
        "Config": "abc.json",
        "RepoTags": ["app:latest"],
        "Layers": ["1/layer.tar", "2/layer.tar"],
    }]);
    let bytes = tar(&[
        ("1/layer.tar", &image.layers[0].blob),
        ("2/layer.tar", &image.layers[1].blob),
        ("abc.json", &image.config),
        ("manifest.json", manifest.to_string().as_bytes()),
    ]);
    let archive = Archive::new();
    let path = archive.write(&bytes);
    let imported = archive.test.store.import_tar(&path, &()).await.unwrap();
    assert_eq!(imported.digest, sha256(&image.config));
    assert_eq!(imported.layers.len(), 2);
    assert!(imported.layers[0].join("one").exists());
}

#[tokio::test]
async fn archives_that_lie_or_lack_something_are_refused() {
    let image = TestImage::of(&[("one", b"1")]);
    let manifest = json!([{"Config": "c.json", "Layers": ["layer.tar"]}]).to_string();
    let cases = [
        tar(&[
            ("manifest.json", manifest.as_bytes()),
            ("c.json", &image.config),
        ]),
        tar(&[
            ("manifest.json", manifest.as_bytes()),
            ("c.json", &image.config),
            ("layer.tar", &tar(&[("other", b"o")])),
        ]),
        tar(&[("oci-layout", b"{}"), ("index.json", &image.index())]),
        tar(&[("../../x", b"x")]),
        b"not a tar".to_vec(),
        gzip(&tar(&[("a", b"b")]))[..20].to_vec(),
    ];
    for bytes in cases {
        let archive = Archive::new();
        let path = archive.write(&bytes);
        archive.test.store.import_tar(&path, &()).await.unwrap_err();
        archive.test.assert_empty();
    }
}

#[tokio::test]
async fn an_archive_that_is_not_there_or_too_large_is_told_so() {
    let archive = Archive::new();
    let missing = archive.folder.path().join("missing.tar");
    let error = archive
        .test
        .store
        .import_tar(&missing, &())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("missing.tar"), "{error}");
    let mut config = config(&[]);
    config.max_layer_bytes = 1 << 20;
    let small = TestStore::with(config);
    let path = archive.write(&gzip(&tar(&[("zeros", &vec![0; 4 << 20])])));
    let error = small.store.import_tar(&path, &()).await.unwrap_err();
    assert!(error.to_string().contains("more than"), "{error}");
    small.assert_empty();
}
