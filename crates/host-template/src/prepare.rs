//! `base`: the host's own `/usr` under a generated root.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Instant,
};

use sha2::{Digest, Sha256};
use soulbox_template::Template;
use soulbox_types::{Limits, UnixMillis, guest::OverlaySpec};

use crate::{
    Error, Result,
    certificates::{self, Certificates},
    error::At,
    layer::{Layer, ROOT},
    root,
    state::{self, State},
    walk::{self, WalkResult},
};

/// First parts of the names of our layers.
pub(crate) const KINDS: [&str; 3] = ["root", "usr", "opt"];

#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Show the host's `/opt` too.
    pub include_opt: bool,
    /// Our static set-uid helper, for hosts without a `sudo` of their own.
    pub sudo: PathBuf,
    /// PEM files with certificates that sandboxes shall trust besides the host's.
    pub extra_ca: Vec<PathBuf>,
}

/// Makes the template `base` in `dir`, or finds that the one there still fits (milliseconds).
/// Blocking. Layers of earlier builds stay until [`crate::prune`].
pub fn prepare_host(dir: &Path, options: &HostOptions) -> Result<Template> {
    prepare(Path::new("/"), dir, options)
}

/// As [`prepare_host`], for a host whose files are below `host`.
fn prepare(host: &Path, dir: &Path, options: &HostOptions) -> Result<Template> {
    let start = Instant::now();
    check_merged(host)?;
    soulbox_durable::make_folder(dir, 0o700).at("make", dir)?;
    // Layers hold set-uid programs for the sandboxes' users. The host's users must not reach them.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        .at("set the mode of", dir)?;
    let earlier = State::load(dir)?;
    if let Some(state) = &earlier
        && state.still_holds(host, options)
    {
        tracing::debug!(
            millis = start.elapsed().as_millis(),
            "template base is up to date"
        );
        return Ok(state.template.clone());
    }
    tracing::info!("making the template base from this machine");
    // Before anything is read: a change during the build shows up at the next start.
    let mut state = State::observe(state::template_id(dir)?, host, options);
    let certificates = Certificates::gather(host, &options.extra_ca)?;
    let mut overlays = vec![OverlaySpec {
        target: PathBuf::from("/"),
        lower: vec![root::build(host, dir, &certificates)?],
    }];
    let trees: &[&str] = if options.include_opt {
        &["usr", "opt"]
    } else {
        &["usr"]
    };
    for tree in trees {
        let source = host.join(tree);
        if !source.is_dir() {
            continue;
        }
        let walk_result = walk::walk(&source, &hidden_in(tree, dir))?;
        let layer = build_over(tree, &source, dir, &walk_result, options, &certificates)?;
        state.watch(&source, &walk_result);
        overlays.push(OverlaySpec {
            target: Path::new("/").join(tree),
            lower: vec![layer, source],
        });
    }
    state.template = Template {
        id: state.template.id,
        build_id: build_id(&overlays),
        aliases: vec!["base".into()],
        overlays,
        env: environment(&certificates),
        default_user: "user".into(),
        default_workdir: String::new(),
        limits: Limits::default(),
        start: None,
        created_at: UnixMillis::now(),
    };
    state.save(dir)?;
    tracing::info!(
        millis = start.elapsed().as_millis(),
        "template base is ready"
    );
    Ok(state.template)
}

/// Our `/usr` has everything only where the old places are links into it.
fn check_merged(host: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib"] {
        let path = host.join(name);
        let target = std::fs::read_link(&path);
        if !target.is_ok_and(|t| t.strip_prefix("/").unwrap_or(&t).starts_with("usr")) {
            return Err(Error::NotUsrMerged { path });
        }
    }
    Ok(())
}

/// What nobody inside needs, what is under mounts, and our own data folder, should it lie there.
fn hidden_in(tree: &str, dir: &Path) -> Vec<PathBuf> {
    let mut hidden = Vec::new();
    if tree == "usr" {
        hidden.push(PathBuf::from("lib/modules"));
    }
    // DIR/templates/base
    let data = dir.ancestors().nth(2).unwrap_or(dir);
    // A layer is the file system below the mounts on it: what those cover must not come to light.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts
        .lines()
        .filter_map(|line| Some(PathBuf::from(line.split(' ').nth(4)?)));
    for path in mounts.chain([data.to_owned()]) {
        if let Ok(inside) = path.strip_prefix(Path::new("/").join(tree)) {
            hidden.push(inside.to_owned());
        }
    }
    hidden
}

/// The thin layer over one of the host's trees: whiteouts, and what is missing in it.
fn build_over(
    tree: &str,
    source: &Path,
    dir: &Path,
    walk_result: &WalkResult,
    options: &HostOptions,
    certificates: &Certificates,
) -> Result<PathBuf> {
    let mut layer = Layer::start(dir, tree)?;
    for path in &walk_result.hidden {
        if let Some(parent) = path.parent() {
            layer.mirror_directories(parent, source)?;
        }
        layer.whiteout(path)?;
    }
    if tree == "usr" {
        let usable = |name: &str| {
            source.join(name).exists() && !walk_result.hidden.iter().any(|h| h == Path::new(name))
        };
        // A whiteout and an addition of the same name: the addition alone does it.
        let mut add = |name: &str, content: &[u8], mode| -> Result<()> {
            layer.mirror_directories(Path::new(name).parent().unwrap_or(Path::new("")), source)?;
            layer.file(name, content, mode, ROOT)
        };
        if !usable("bin/sudo") {
            let helper = std::fs::read(&options.sudo).at("read", &options.sudo)?;
            add("bin/sudo", &helper, 0o4755)?;
        }
        if !usable("sbin/policy-rc.d") {
            // There is no init inside: packages must not try to start their services.
            add("sbin/policy-rc.d", b"#!/bin/sh\nexit 101\n", 0o755)?;
        }
        if !usable("bin/python") && !usable("local/bin/python") && usable("bin/python3") {
            layer.mirror_directories(Path::new("bin"), source)?;
            layer.link("bin/python", "python3")?;
        }
        certificates.add_sources(&mut layer, source)?;
    }
    layer.finish(dir, tree)
}

fn build_id(overlays: &[OverlaySpec]) -> String {
    let mut hash = Sha256::new();
    for path in overlays.iter().flat_map(|overlay| &overlay.lower) {
        hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update([0]);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}

fn environment(certificates: &Certificates) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("LANG", "C.UTF-8"),
        // The whole system is the sandbox's own: there is nothing to protect from pip.
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ]);
    if certificates.has_extra() {
        env.extend(certificates::VARIABLES.map(|name| (name, certificates::BUNDLE)));
    }
    env.into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests;
