//! Debian's `docker-registry`, started here on a free port.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use soulbox_image::Credentials;
use soulbox_types::Secret;
use tempfile::TempDir;

use crate::{
    image::{INDEX, Layer, MANIFEST, TestImage, noise, sha256, tar},
    store::TestStore,
};

const PROGRAM: &str = "docker-registry";
/// `secret`, as `htpasswd -B` writes it.
const USERS: &str = "me:$2b$12$fyKAqpvAlCh0K858JhqMe.Hs6mlPuTbiZSylO8iEAbaYLJN53hdbK\n";

pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    process: Child,
    authorization: Option<String>,
    client: Client<HttpConnector, Full<Bytes>>,
    _folder: TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Registry {
    /// `None`, with the reason, where it cannot be run.
    pub(crate) fn start(closed: bool) -> Option<Self> {
        let found = Command::new(PROGRAM)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if found.is_err() {
            println!("skipped: {PROGRAM} is not installed (apt install {PROGRAM})");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let address = {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap()
        };
        let config = write_config(folder.path(), address, closed);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(config)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut registry = Self {
            address,
            process,
            authorization: closed.then(|| format!("Basic {}", STANDARD.encode("me:secret"))),
            client: Client::builder(TokioExecutor::new()).build_http(),
            _folder: folder,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            let ended = registry.process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the registry did not start"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }

    async fn send(&self, method: Method, uri: &str, kind: &str, body: &[u8]) -> http::HeaderMap {
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", kind);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let answer = self.client.request(request).await.unwrap();
        let good = [StatusCode::CREATED, StatusCode::ACCEPTED].contains(&answer.status());
        assert!(good, "{uri}: {}", answer.status());
        answer.headers().clone()
    }

    async fn push_blob(&self, repository: &str, blob: &[u8]) {
        let uri = format!("http://{}/v2/{repository}/blobs/uploads/", self.address);
        let begun = self.send(Method::POST, &uri, "text/plain", b"").await;
        let location = begun.get("location").unwrap().to_str().unwrap();
        let uri = format!("{location}&digest={}", sha256(blob));
        self.send(Method::PUT, &uri, "application/octet-stream", blob)
            .await;
    }

    async fn push(&self, repository: &str, image: &TestImage) {
        self.push_blob(repository, &image.config).await;
        for layer in &image.layers {
            self.push_blob(repository, &layer.blob).await;
        }
        self.push_manifest(repository, "latest", MANIFEST, &image.manifest)
            .await;
    }

    async fn push_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: &[u8]) {
        let uri = format!("http://{}/v2/{repository}/manifests/{tag}", self.address);
        self.send(Method::PUT, &uri, kind, manifest).await;
    }

    pub(crate) fn reference(&self, repository: &str) -> String {
        format!("{}/{repository}", self.address)
    }
}

fn write_config(folder: &Path, address: SocketAddr, closed: bool) -> std::path::PathBuf {
    let users = folder.join("users");
    std::fs::write(&users, USERS).unwrap();
    let auth = if closed {
        format!(
            "auth:\n  htpasswd:\n    realm: test\n    path: {}\n",
            users.display()
        )
    } else {
        String::new()
    };
    let text = format!(
        "version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
         http:\n  addr: {address}\n{auth}",
        folder.join("data").display()
    );
    let config = folder.join("config.yml");
    std::fs::write(&config, text).unwrap();
    config
}

#[tokio::test]
async fn images_come_out_of_debians_registry_as_they_went_in() {
    let Some(registry) = Registry::start(false) else {
        return;
    };
    let big = noise(6 << 20, 11);
    let image = TestImage::new(vec![
        Layer::gzip(&tar(&[("etc/os-release", b"ID=test\n"), ("big", &big)])),
        Layer::zstd(&tar(&[("etc/.wh.motd", b""), ("srv/app", b"app")])),
    ]);
    registry.push("team/app", &image).await;
    let other = TestImage::of(&[("other", b"machine")]);
    registry.push("team/app", &other).await;
    registry.push("team/app", &image).await;
    let test = TestStore::trusting(&[registry.address.to_string()]);
    let reference = registry.reference("team/app");
    let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(pulled.digest, image.digest());
    assert_eq!(std::fs::read(pulled.layers[0].join("big")).unwrap(), big);
    assert!(pulled.layers[1].join("srv/app").exists());
    let exact = format!("{reference}@{}", image.digest());
    let same = test.store.pull(&exact, None, false, &()).await.unwrap();
    assert_eq!(same.layers, pulled.layers);
    let missing = test
        .store
        .pull(&format!("{reference}:nope"), None, false, &())
        .await;
    let error = missing.unwrap_err().to_string();
    assert!(
        error.contains("manifest unknown") && error.contains("nope"),
        "{error}"
    );
    test.assert_no_leftovers();
}

#[tokio::test]
async fn an_index_in_debians_registry_leads_to_this_machines_image() {
    let Some(registry) = Registry::start(false) else {
        return;
    };
    let image = TestImage::of(&[("a", b"b")]);
    registry.push("app", &image).await;
    let index = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{
            "mediaType": MANIFEST,
            "digest": image.digest(),
            "size": image.manifest.len(),
            "platform": {"os": "linux", "architecture": crate::image::architecture()},
        }],
    });
    let index = index.to_string();
    registry
        .push_manifest("app", "multi", INDEX, index.as_bytes())
        .await;
    let test = TestStore::trusting(&[registry.address.to_string()]);
    let reference = format!("{}:multi", registry.reference("app"));
    let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();
    assert_eq!(pulled.digest, image.digest());
}

#[tokio::test]
async fn debians_registry_with_a_password_wants_the_right_one() {
    let Some(registry) = Registry::start(true) else {
        return;
    };
    registry.push("app", &TestImage::of(&[("a", b"b")])).await;
    let test = TestStore::trusting(&[registry.address.to_string()]);
    let reference = registry.reference("app");
    let with = |password: &str| Credentials::Basic {
        username: "me".into(),
        password: Secret::new(password),
    };
    for credentials in [None, Some(with("wrong-password"))] {
        let ended = test
            .store
            .pull(&reference, credentials.as_ref(), false, &())
            .await;
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("refused the sign-in"), "{error}");
        assert!(!error.contains("wrong-password"), "{error}");
        test.assert_empty();
    }
    test.store
        .pull(&reference, Some(&with("secret")), false, &())
        .await
        .unwrap();
}
