//! Whether an earlier build is still up to date.
//!
//! `state.json` keeps the template and the times of everything that it was made from: every
//! directory of `/usr` (a package that adds, removes or replaces a file changes its directory)
//! and the few trees of `/etc` and `/var` that are copied. Looking at these again takes
//! milliseconds. A bare `chmod` of a file inside `/usr` is not noticed; the next change is.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, statat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use soulbox_template::Template;
use soulbox_types::{Limits, TemplateId, UnixMillis};

use crate::{
    HostOptions, Result,
    error::At,
    walk::{Times, WalkResult},
};

/// Raised whenever the same host would give other layers.
const FORMAT: u32 = 1;
const FILE: &str = "state.json";
/// Files and directories outside `/usr` whose change asks for another build.
const SOURCES: &[&str] = &[
    "etc",
    "etc/passwd",
    "etc/group",
    "etc/alternatives",
    "etc/apt",
    "etc/apt/apt.conf.d",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/ssl",
    "etc/ssl/certs",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs",
    "etc/pam.d",
    "etc/ld.so.cache",
    "etc/ld.so.conf.d",
    "etc/npmrc",
    "etc/pip.conf",
    "etc/wgetrc",
    "var/lib/dpkg",
    "var/lib/dpkg/status",
    "var/lib/dpkg/info",
    "var/lib/rpm",
];

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) template: Template,
    /// Everything that times do not show: options, our version, the helper.
    inputs: String,
    /// Of [`SOURCES`] on the host.
    sources: String,
    trees: Vec<Tree>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Tree {
    path: PathBuf,
    directories: Vec<PathBuf>,
    times: String,
}

impl State {
    /// `None` when there is none, or one that this version of SoulBox cannot read.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        Ok(match serde_json::from_slice(&bytes) {
            Ok(state) => Some(state),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "making the template base anew");
                None
            }
        })
    }

    /// The host as it is now, with a template still to be filled in.
    pub(crate) fn observe(id: TemplateId, host: &Path, options: &HostOptions) -> Self {
        Self {
            template: Template {
                id,
                build_id: String::new(),
                aliases: Vec::new(),
                overlays: Vec::new(),
                env: std::collections::BTreeMap::new(),
                default_user: String::new(),
                default_workdir: String::new(),
                limits: Limits::default(),
                start: None,
                created_at: UnixMillis::now(),
            },
            inputs: inputs(options),
            sources: times_of(host, SOURCES.iter().map(Path::new)),
            trees: Vec::new(),
        }
    }

    pub(crate) fn watch(&mut self, tree: &Path, walk_result: &WalkResult) {
        let mut hash = Sha256::new();
        for (_, times) in &walk_result.directories {
            add(&mut hash, Some(*times));
        }
        self.trees.push(Tree {
            path: tree.to_owned(),
            directories: walk_result
                .directories
                .iter()
                .map(|(path, _)| path.clone())
                .collect(),
            times: hex::encode(hash.finalize()),
        });
    }

    pub(crate) fn still_holds(&self, host: &Path, options: &HostOptions) -> bool {
        self.inputs == inputs(options)
            && self
                .template
                .overlays
                .iter()
                .flat_map(|o| &o.lower)
                .all(|path| path.is_dir())
            && self.sources == times_of(host, SOURCES.iter().map(Path::new))
            && self.trees.iter().all(|tree| {
                tree.times == times_of(&tree.path, tree.directories.iter().map(PathBuf::as_path))
            })
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let bytes = serde_json::to_vec(self).at("write", &path)?;
        soulbox_durable::write(&path, 0o600, &bytes).at("write", &path)
    }
}

/// The template's id, for good: sandboxes and users refer to it, whatever happens to the rest.
pub(crate) fn template_id(dir: &Path) -> Result<TemplateId> {
    let path = dir.join("id");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            if let Ok(id) = text.trim().parse() {
                return Ok(id);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at("read", &path),
    }
    let id = TemplateId::random();
    soulbox_durable::write(&path, 0o600, format!("{id}\n").as_bytes()).at("write", &path)?;
    Ok(id)
}

fn inputs(options: &HostOptions) -> String {
    let mut hash = Sha256::new();
    hash.update(FORMAT.to_le_bytes());
    hash.update(env!("CARGO_PKG_VERSION"));
    hash.update([u8::from(options.include_opt)]);
    for path in std::iter::once(&options.sudo).chain(&options.extra_ca) {
        let content = std::fs::read(path).unwrap_or_default();
        hash.update(content.len().to_le_bytes());
        hash.update(&content);
    }
    hex::encode(hash.finalize())
}

fn times_of<'a>(base: &Path, paths: impl Iterator<Item = &'a Path>) -> String {
    let mut hash = Sha256::new();
    for path in paths {
        let full = if path.as_os_str().is_empty() {
            base.to_owned()
        } else {
            base.join(path)
        };
        let stat = statat(CWD, &full, AtFlags::SYMLINK_NOFOLLOW);
        add(&mut hash, stat.ok().map(|stat| Times::of(&stat)));
    }
    hex::encode(hash.finalize())
}

fn add(hash: &mut Sha256, times: Option<Times>) {
    for number in times.map_or([i64::MIN; 4], |times| times.0) {
        hash.update(number.to_le_bytes());
    }
}
