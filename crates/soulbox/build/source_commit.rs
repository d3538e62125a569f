//! The commit that a source folder is at, read from git's files: a build then needs no git, nor
//! its trust in whoever owns the folder (root builds what others have cloned).

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Enough to be unique for a long time.
const SHOWN: usize = 12;

pub(crate) struct Found {
    pub(crate) commit: String,
    /// Only what is there: a missing file would count as changed in every build.
    pub(crate) changes_with: Vec<PathBuf>,
}

/// `None` when the folder itself is no checkout, even if it lies in one: then it is not the source
/// of that.
pub(crate) fn find(source: &Path) -> Option<Found> {
    let git = git_folder(source)?;
    // A worktree has a HEAD of its own and shares the branches.
    let shared = read(&git.join("commondir")).map_or_else(|| git.clone(), |path| git.join(path));
    let head = git.join("HEAD");
    let text = read(&head)?;
    let Some(branch) = text.strip_prefix("ref: ") else {
        return Some(Found {
            commit: shown(&text)?,
            changes_with: vec![head],
        });
    };
    let loose = shared.join(branch);
    if let Some(text) = read(&loose) {
        return Some(Found {
            commit: shown(&text)?,
            changes_with: vec![head, loose],
        });
    }
    let packed = shared.join("packed-refs");
    let commit = read(&packed)?.lines().find_map(|line| {
        let (hash, name) = line.split_once(' ')?;
        (name == branch).then(|| shown(hash))?
    })?;
    // The next commit makes the loose file, in the folder where it would be now.
    let folder = loose.ancestors().skip(1).find(|path| path.is_dir())?;
    Some(Found {
        commit,
        changes_with: vec![head, packed, folder.to_owned()],
    })
}

fn git_folder(source: &Path) -> Option<PathBuf> {
    let git = source.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    Some(source.join(read(&git)?.strip_prefix("gitdir: ")?))
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end().to_owned())
}

fn shown(hash: &str) -> Option<String> {
    let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash[..SHOWN].to_owned())
}
