//! A data folder from a backup.

use std::{
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use fs_err as fs;
use serde_json::Value;

use crate::{
    Error, FileKind, Manifest, Progress, Result, Watcher, check_space, error::At, layer, verify,
};

/// In a data folder that is a mount point: what is restored until it is whole. A server does not
/// start on it.
pub const UNFINISHED: &str = "restore.new";
const DATABASE: &str = "soulbox.db";
/// In a folder that is being restored: this program made it.
const MARK: &str = ".restoring";

/// Makes `data_dir` from the backup in `folder`, which is verified first. On error, or when it is cut
/// short, there is nothing in `data_dir` that looks like one.
pub fn restore(
    folder: &Path,
    manifest: &Manifest,
    data_dir: &Path,
    watcher: &dyn Watcher,
) -> Result<()> {
    check_empty(data_dir)?;
    verify(folder, manifest, watcher)?;
    let above = data_dir
        .parent()
        .filter(|path| !path.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    fs::create_dir_all(above).at("make", above)?;
    check_space(above_of(data_dir, above), manifest.bytes(), None)?;
    let mounted = is_mount_point(data_dir, above);
    let unfinished = if mounted {
        data_dir.join(UNFINISHED)
    } else {
        let mut name = data_dir.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        above.join(name)
    };
    remove_unfinished(&unfinished)?;
    let done = fill(folder, manifest, &unfinished, data_dir, watcher).and_then(|()| {
        if mounted {
            move_up(&unfinished, data_dir)
        } else {
            soulbox_durable::rename(&unfinished, data_dir).at("give its name to", data_dir)
        }
    });
    if done.is_err()
        && let Err(error) = fs::remove_dir_all(&unfinished)
    {
        tracing::warn!(%error, "what was restored in part is left: remove it");
    }
    done
}

/// Left by one that was cut short. What somebody else has under that name stays.
fn remove_unfinished(path: &Path) -> Result<()> {
    let Ok(mut entries) = fs::read_dir(path) else {
        return match path.symlink_metadata() {
            Ok(_) => Err(Error::NotEmpty(path.to_owned())),
            Err(_) => Ok(()),
        };
    };
    if entries.next().is_some() && !path.join(MARK).is_file() {
        return Err(Error::NotEmpty(path.to_owned()));
    }
    fs::remove_dir_all(path).at("remove", path)
}

fn above_of<'a>(data_dir: &'a Path, above: &'a Path) -> &'a Path {
    if data_dir.is_dir() { data_dir } else { above }
}

fn check_empty(data_dir: &Path) -> Result<()> {
    match fs::read_dir(data_dir) {
        Ok(entries) => {
            // Those of a disk, and of a restore that was cut short.
            let ours = |name: &std::ffi::OsStr| name == "lost+found" || name == UNFINISHED;
            for entry in entries {
                if !ours(&entry.at("list", data_dir)?.file_name()) {
                    return Err(Error::NotEmpty(data_dir.to_owned()));
                }
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Error::NotEmpty(data_dir.to_owned()))
        }
        Err(error) => Err(error).at("list", data_dir),
    }
}

fn is_mount_point(data_dir: &Path, above: &Path) -> bool {
    match (fs::metadata(data_dir), fs::metadata(above)) {
        (Ok(own), Ok(above)) => own.dev() != above.dev(),
        _ => false,
    }
}

fn fill(
    folder: &Path,
    manifest: &Manifest,
    target: &Path,
    data_dir: &Path,
    watcher: &dyn Watcher,
) -> Result<()> {
    soulbox_durable::make_folder(target, 0o700).at("make", target)?;
    let mark = target.join(MARK);
    soulbox_durable::write(&mark, 0o600, b"").at("write", &mark)?;
    let canonical = fs::canonicalize(folder).at("find", folder)?;
    let total = manifest.bytes();
    let mut done = 0;
    for file in &manifest.files {
        let what = file.path.to_string_lossy();
        let goes_on = || {
            let progress = Progress {
                done,
                total,
                what: &what,
            };
            if watcher.goes_on(progress) {
                Ok(())
            } else {
                Err(Error::Stopped)
            }
        };
        goes_on()?;
        let (from, to) = (canonical.join(&file.path), target.join(file.target()));
        if fs::canonicalize(&from).at("find", &from)? != from {
            let (path, why) = (file.path.clone(), "it is a link".to_owned());
            return Err(Error::Damaged { path, why });
        }
        if let Some(above) = to.parent() {
            fs::create_dir_all(above).at("make", above)?;
        }
        match file.kind {
            FileKind::Folder => layer::unpack(&from, &to, &goes_on)?,
            FileKind::File => {
                soulbox_sparse::copy(&from, &to).at("copy", &from)?;
                let mode = std::fs::Permissions::from_mode(file.mode & 0o777);
                fs::set_permissions(&to, mode).at("set the mode of", &to)?;
            }
        }
        done = u64::saturating_add(done, file.bytes);
    }
    for volume in &manifest.volumes {
        for name in ["disk", "mnt"] {
            let path = target.join("volumes").join(volume).join(name);
            fs::create_dir_all(&path).at("make", &path)?;
        }
    }
    let absolute = std::path::absolute(data_dir).at("find", data_dir)?;
    move_paths(target, &manifest.data_dir, &absolute)?;
    fs::remove_file(&mark).at("remove", &mark)?;
    let opened = fs::File::open(target).at("open", target)?;
    rustix::fs::syncfs(opened.file()).at("put on the disk", target)
}

/// Builds name their layers by absolute paths.
fn move_paths(target: &Path, before: &Path, now: &Path) -> Result<()> {
    let mut files = vec![target.join("templates/base/state.json")];
    let builds = target.join("templates/builds");
    if builds.is_dir() {
        for entry in fs::read_dir(&builds).at("list", &builds)? {
            files.push(entry.at("list", &builds)?.path());
        }
    }
    for path in files.into_iter().filter(|path| path.is_file()) {
        let text = fs::read(&path).at("read", &path)?;
        let Ok(mut value) = serde_json::from_slice::<Value>(&text) else {
            // As it was there: the server says what is wrong with it.
            continue;
        };
        let template = match value.get_mut("template") {
            Some(template) => template,
            None => &mut value,
        };
        move_layers(template, before, now);
        let text = serde_json::to_vec(&value)
            .map_err(std::io::Error::other)
            .at("write", &path)?;
        soulbox_durable::write_soon(&path, 0o600, &text).at("write", &path)?;
    }
    Ok(())
}

fn move_layers(template: &mut Value, before: &Path, now: &Path) {
    let overlays = template.get_mut("overlays").and_then(Value::as_array_mut);
    for overlay in overlays.into_iter().flatten() {
        let lower = overlay.get_mut("lower").and_then(Value::as_array_mut);
        for layer in lower.into_iter().flatten() {
            let moved = layer
                .as_str()
                .and_then(|path| Path::new(path).strip_prefix(before).ok())
                .map(|rest| now.join(rest));
            if let Some(moved) = moved {
                *layer = Value::String(moved.to_string_lossy().into_owned());
            }
        }
    }
}

/// The database last: without it nobody takes the folder for a server's.
fn move_up(unfinished: &Path, data_dir: &Path) -> Result<()> {
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(unfinished).at("list", unfinished)? {
        names.push(entry.at("list", unfinished)?.file_name().into());
    }
    names.sort_by_key(|name| name == Path::new(DATABASE));
    for name in names {
        let to = data_dir.join(&name);
        soulbox_durable::rename(&unfinished.join(&name), &to).at("give its name to", &to)?;
    }
    fs::remove_dir(unfinished).at("remove", unfinished)
}
