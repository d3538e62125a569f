//! Images in archives: Docker's `manifest.json` and OCI's `index.json`.

use std::fs::File;

use serde::Deserialize;

use super::archive::{Archive, Part};
use crate::{
    Result,
    digest::Digest,
    image::Settings,
    manifest::{MAX_CONFIG, MAX_MANIFEST, Manifest, configuration, malformed},
    registry::check,
};

const MAX_INDEXES: usize = 4;

#[derive(Debug)]
pub(crate) struct ArchivedImage {
    pub(crate) digest: Digest,
    pub(crate) settings: Settings,
    /// Lowest first.
    pub(crate) layers: Vec<Part>,
    pub(crate) diff_ids: Vec<Digest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    layers: Vec<String>,
}

impl ArchivedImage {
    /// `None`: files that are called so by chance.
    pub(crate) fn read(archive: &Archive, file: &File) -> Result<Option<Self>> {
        if archive.part("oci-layout").is_some()
            && let Some(index) = archive.text(file, "index.json", MAX_MANIFEST)?
        {
            return Self::oci(archive, file, index).map(Some);
        }
        let Some(text) = archive.text(file, "manifest.json", MAX_MANIFEST)? else {
            return Ok(None);
        };
        let Ok(saved) = serde_json::from_slice::<Vec<DockerManifest>>(&text) else {
            return Ok(None);
        };
        match <[DockerManifest; 1]>::try_from(saved) {
            Ok([saved]) if archive.part(&saved.config).is_some() => {
                Self::docker(archive, file, &saved).map(Some)
            }
            Ok(_) => Ok(None),
            Err(none) if none.is_empty() => Ok(None),
            Err(several) => Err(malformed(
                "the archive",
                format!("it has {} images: save one at a time", several.len()),
            )),
        }
    }

    fn oci(archive: &Archive, file: &File, index: Vec<u8>) -> Result<Self> {
        let blob = |digest: &Digest, limit: u64| {
            let name = format!("blobs/sha256/{}", digest.hex());
            let bytes = archive.text(file, &name, limit)?;
            let bytes = bytes.ok_or_else(|| missing(&name))?;
            check(&name, digest, &Digest::of(&bytes))?;
            Ok(bytes)
        };
        let mut bytes = index;
        let mut digest = Digest::of(&bytes);
        for _ in 0..MAX_INDEXES {
            match Manifest::parse(&bytes)? {
                Manifest::Index(found) => {
                    bytes = blob(&found.digest, MAX_MANIFEST)?;
                    digest = found.digest;
                }
                Manifest::Image(manifest) => {
                    let config = blob(&manifest.config.digest, MAX_CONFIG)?;
                    let (settings, diff_ids) = configuration(&config, manifest.layers.len())?;
                    let part = |digest: &Digest| {
                        let name = format!("blobs/sha256/{}", digest.hex());
                        archive.part(&name).ok_or_else(|| missing(&name))
                    };
                    let layers = manifest.layers.iter().map(|layer| part(&layer.digest));
                    return Ok(Self {
                        digest,
                        settings,
                        layers: layers.collect::<Result<_>>()?,
                        diff_ids,
                    });
                }
            }
        }
        Err(malformed("the archive", "its indexes lead nowhere"))
    }

    fn docker(archive: &Archive, file: &File, saved: &DockerManifest) -> Result<Self> {
        let config = archive.text(file, &saved.config, MAX_CONFIG)?;
        let config = config.ok_or_else(|| missing(&saved.config))?;
        let (settings, diff_ids) = configuration(&config, saved.layers.len())?;
        let part = |name: &String| archive.part(name).ok_or_else(|| missing(name));
        Ok(Self {
            digest: Digest::of(&config),
            settings,
            layers: saved.layers.iter().map(part).collect::<Result<_>>()?,
            diff_ids,
        })
    }
}

fn missing(name: &str) -> crate::Error {
    let name: String = name.chars().take(100).collect();
    malformed("the archive", format!("{name} is not in it"))
}
