//! Images made by hand, so that they can be wrong on purpose.

use std::io::Write;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(digest(&SHA256, bytes)))
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A plain archive with these files.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        let raw = header.as_old_mut();
        raw.name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        header.set_mtime(1_000_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Bytes that do not compress, always the same for the same seed.
pub(crate) fn noise(length: usize, mut seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(seed >> 16).to_le_bytes()[..4]);
    }
    bytes.truncate(length);
    bytes
}

#[derive(Clone)]
pub(crate) struct Layer {
    /// As it is sent.
    pub(crate) blob: Vec<u8>,
    pub(crate) diff_id: String,
}

impl Layer {
    pub(crate) fn gzip(tar: &[u8]) -> Self {
        Self {
            blob: gzip(tar),
            diff_id: sha256(tar),
        }
    }

    pub(crate) fn zstd(tar: &[u8]) -> Self {
        Self {
            blob: zstd::encode_all(tar, 1).unwrap(),
            diff_id: sha256(tar),
        }
    }

    pub(crate) fn plain(tar: &[u8]) -> Self {
        Self {
            blob: tar.to_vec(),
            diff_id: sha256(tar),
        }
    }

    pub(crate) fn digest(&self) -> String {
        sha256(&self.blob)
    }
}

#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) layers: Vec<Layer>,
}

impl TestImage {
    pub(crate) fn new(layers: Vec<Layer>) -> Self {
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let config = json!({
            "os": "linux",
            "architecture": architecture(),
            "config": {
                "Env": ["PATH=/usr/bin:/bin", "GREETING=hello=world"],
                "User": "app",
                "WorkingDir": "/srv",
                "Entrypoint": ["/bin/entry"],
                "Cmd": ["serve"],
                "ExposedPorts": {"8080/tcp": {}},
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = config.to_string().into_bytes();
        let described: Vec<_> = layers
            .iter()
            .map(|layer| {
                json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": layer.digest(),
                    "size": layer.blob.len(),
                })
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": sha256(&config),
                "size": config.len(),
            },
            "layers": described,
        });
        Self {
            manifest: manifest.to_string().into_bytes(),
            config,
            layers,
        }
    }

    pub(crate) fn of(files: &[(&str, &[u8])]) -> Self {
        Self::new(vec![Layer::gzip(&tar(files))])
    }

    pub(crate) fn digest(&self) -> String {
        sha256(&self.manifest)
    }

    /// What a registry with images for several machines shows first.
    pub(crate) fn index(&self) -> Vec<u8> {
        let other = json!({
            "mediaType": MANIFEST,
            "digest": sha256(b"other"),
            "size": 5,
            "platform": {"os": "linux", "architecture": "mips"},
        });
        let own = json!({
            "mediaType": MANIFEST,
            "digest": self.digest(),
            "size": self.manifest.len(),
            "platform": {"os": "linux", "architecture": architecture()},
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, own]});
        index.to_string().into_bytes()
    }
}

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}
