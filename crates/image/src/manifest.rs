//! Manifests, indexes and configurations: the JSON of an image, OCI's and Docker's.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};

use crate::{Error, Result, digest::Digest, image::Settings};

/// What we can read, most wanted first.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
pub(crate) const MAX_CONFIG: u64 = 8 << 20;
/// overlayfs takes 500, but every image that was built by somebody has fewer than 128.
const MAX_LAYERS: usize = 128;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    schema_version: u32,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Debug)]
pub(crate) enum Manifest {
    Image(ImageManifest),
    /// The manifest for this machine is behind this descriptor.
    Index(Descriptor),
}

#[derive(Debug)]
pub(crate) struct ImageManifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

impl Manifest {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let document: Document = parse("the manifest", bytes)?;
        if let Some(manifests) = document.manifests {
            return Ok(Self::Index(select(&manifests)?));
        }
        match (document.config, document.layers) {
            (Some(config), Some(layers)) => {
                if layers.len() > MAX_LAYERS {
                    let reason = format!("it has more than {MAX_LAYERS} layers");
                    return Err(malformed("the manifest", reason));
                }
                Ok(Self::Image(ImageManifest { config, layers }))
            }
            _ if document.schema_version == 1 => Err(malformed(
                "the manifest",
                "it has Docker's old schema 1; push the image again with a current tool",
            )),
            _ => Err(malformed(
                "the manifest",
                "it has neither layers nor manifests",
            )),
        }
    }
}

/// The entry for Linux on this machine's processor.
fn select(manifests: &[Descriptor]) -> Result<Descriptor> {
    let fits = |descriptor: &&Descriptor| {
        descriptor.platform.as_ref().is_some_and(|platform| {
            // 32-bit ARM has variants that exclude each other; we run on none of them.
            let variant = matches!(platform.variant.as_str(), "" | "v8" | "v1");
            platform.os == "linux" && platform.architecture == architecture() && variant
        })
    };
    if let Some(found) = manifests.iter().find(fits) {
        return Ok(found.clone());
    }
    if let [only] = manifests
        && only.platform.is_none()
    {
        return Ok(only.clone());
    }
    let found: Vec<String> = manifests
        .iter()
        .filter_map(|descriptor| descriptor.platform.as_ref())
        .filter(|platform| platform.os != "unknown")
        .map(|platform| printable(&format!("{}/{}", platform.os, platform.architecture), 60))
        .take(16)
        .collect();
    Err(wrong_platform(&found.join(", ")))
}

#[derive(Debug, Deserialize)]
struct Configuration {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Run>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

/// Every part can be missing or null.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Run {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
}

/// Reads a configuration: how to run, and the digests of the unpacked layers.
pub(crate) fn configuration(bytes: &[u8], layers: usize) -> Result<(Settings, Vec<Digest>)> {
    let read: Configuration = parse("the image's configuration", bytes)?;
    let other_os = !read.os.is_empty() && read.os != "linux";
    let other_machine = !read.architecture.is_empty() && read.architecture != architecture();
    if other_os || other_machine {
        let found = printable(&format!("{}/{}", read.os, read.architecture), 60);
        return Err(wrong_platform(&found));
    }
    let diff_ids = read.rootfs.diff_ids;
    if diff_ids.len() != layers {
        let reason = format!(
            "it speaks of {} layers, the manifest of {layers}",
            diff_ids.len()
        );
        return Err(malformed("the image's configuration", reason));
    }
    let run = read.config.unwrap_or_default();
    let variable = |text: String| match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (text, String::new()),
    };
    let settings = Settings {
        env: run
            .env
            .unwrap_or_default()
            .into_iter()
            .map(variable)
            .collect(),
        user: run.user.unwrap_or_default(),
        workdir: run.working_dir.unwrap_or_default(),
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
        exposed_ports: run.exposed_ports.unwrap_or_default().into_keys().collect(),
    };
    Ok((settings, diff_ids))
}

pub(crate) fn parse<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    // The error repeats what it does not like, however long that is.
    serde_json::from_slice(bytes)
        .map_err(|error| malformed(what, printable(&error.to_string(), 200)))
}

pub(crate) fn malformed(what: &str, reason: impl Into<String>) -> Error {
    Error::Malformed {
        what: what.to_owned(),
        reason: reason.into(),
    }
}

/// Untrusted text, made fit for one line of a log.
pub(crate) fn printable(text: &str, longest: usize) -> String {
    let clean = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().take(longest).map(clean).collect()
}

fn wrong_platform(found: &str) -> Error {
    Error::Platform {
        wanted: format!("linux/{}", architecture()),
        found: match found {
            "" => "none".to_owned(),
            found => found.to_owned(),
        },
    }
}

/// This machine's processor, as images name it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(platform: &str) -> String {
        let digest = Digest::of(platform.as_bytes());
        format!(r#"{{"digest":"{digest}","size":2,"platform":{platform}}}"#)
    }

    #[test]
    fn an_index_leads_to_this_machines_manifest() {
        let own = format!(r#"{{"os":"linux","architecture":"{}"}}"#, architecture());
        let text = format!(
            r#"{{"schemaVersion":2,"manifests":[{},{},{}]}}"#,
            descriptor(r#"{"os":"linux","architecture":"s390y"}"#),
            descriptor(&own),
            descriptor(r#"{"os":"unknown","architecture":"unknown"}"#),
        );
        let Manifest::Index(found) = Manifest::parse(text.as_bytes()).unwrap() else {
            panic!("an index");
        };
        assert_eq!(found.digest, Digest::of(own.as_bytes()));
    }

    #[test]
    fn an_index_without_this_machine_names_what_it_has() {
        let text = format!(
            r#"{{"manifests":[{}]}}"#,
            descriptor(r#"{"os":"windows","architecture":"amd64"}"#)
        );
        let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("windows/amd64"), "{error}");
        assert!(error.contains("linux/"), "{error}");
    }

    #[test]
    fn old_and_empty_manifests_are_refused() {
        for bad in ["", "{}", "[]", r#"{"schemaVersion":1,"fsLayers":[]}"#] {
            assert!(Manifest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refusal_does_not_repeat_the_document() {
        let text = format!(r#"{{"schemaVersion":"{}"}}"#, "x".repeat(1 << 20));
        let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.len() < 500, "{} bytes", error.len());
    }

    #[test]
    fn a_configuration_may_leave_everything_out() {
        let text = r#"{"rootfs":{"diff_ids":[]},"config":{"Env":null,"Cmd":["sh"]}}"#;
        let (settings, diff_ids) = configuration(text.as_bytes(), 0).unwrap();
        assert_eq!(settings.cmd, ["sh"]);
        assert!(diff_ids.is_empty() && settings.env.is_empty());
        assert!(configuration(text.as_bytes(), 1).is_err());
    }

    #[test]
    fn settings_are_taken_over() {
        let text = r#"{"os":"linux","rootfs":{"diff_ids":[]},"config":{
            "Env":["PATH=/bin:/x=y","EMPTY"],"User":"app:app","WorkingDir":"/srv",
            "Entrypoint":["/e"],"Cmd":null,"ExposedPorts":{"80/tcp":{}}}}"#;
        let (settings, _) = configuration(text.as_bytes(), 0).unwrap();
        let expected = Settings {
            env: vec![
                ("PATH".into(), "/bin:/x=y".into()),
                ("EMPTY".into(), String::new()),
            ],
            user: "app:app".into(),
            workdir: "/srv".into(),
            entrypoint: vec!["/e".into()],
            cmd: vec![],
            exposed_ports: vec!["80/tcp".into()],
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn an_image_for_another_machine_is_refused() {
        let text = r#"{"os":"linux","architecture":"s390y","rootfs":{"diff_ids":[]}}"#;
        let error = configuration(text.as_bytes(), 0).unwrap_err().to_string();
        assert!(error.contains("s390y"), "{error}");
    }
}
