//! What is in a backup.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use soulbox_types::UnixMillis;

use crate::{Error, Result, error::At};

/// Raised when an older program could not restore what a newer one wrote.
pub const FORMAT: u32 = 1;
pub(crate) const FILE: &str = "manifest.json";
pub(crate) const SUM: &str = "manifest.sum";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Of the program that made it.
    pub version: String,
    pub created_at: UnixMillis,
    /// Paths in the files begin with it.
    pub data_dir: PathBuf,
    /// The operating system whose `/usr` the template `base` shows, as it calls itself.
    pub host: String,
    pub sandboxes: Vec<CopiedSandbox>,
    pub snapshots: Vec<String>,
    pub volumes: Vec<String>,
    /// Builds of templates.
    pub builds: Vec<String>,
    /// What is in the data folder and not in here.
    pub left_out: Vec<LeftOut>,
    pub files: Vec<FileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedSandbox {
    pub id: String,
    /// `running`, `paused_in_memory` or `paused_on_disk`; it comes back paused in any case.
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Below the backup's folder.
    pub path: PathBuf,
    pub kind: FileKind,
    /// Of a plain file, once it is restored.
    pub mode: u32,
    /// With holes.
    pub length: u64,
    /// What is not zero.
    pub bytes: u64,
    /// BLAKE3, hex; holes count as zeros.
    pub checksum: String,
    /// The next backup need not copy what has the same path and this word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanging: Option<String>,
}

impl FileEntry {
    /// Where it is restored to, below the data folder.
    pub(crate) fn target(&self) -> PathBuf {
        match self.kind {
            FileKind::File => self.path.clone(),
            FileKind::Folder => self.path.with_extension(""),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    /// An archive of the folder that has its name without `.tar`.
    Folder,
}

/// What every format has.
#[derive(Debug, Deserialize)]
struct Head {
    format: u32,
    #[serde(default)]
    version: String,
}

impl Manifest {
    /// Of the backup in `folder`. Checked against its checksum.
    pub fn read(folder: &Path) -> Result<Self> {
        let (path, sum) = (folder.join(FILE), folder.join(SUM));
        if !path.is_file() {
            return Err(Error::NoBackup(folder.to_owned()));
        }
        let text = fs::read(&path).at("read", &path)?;
        let damaged = |why: String| Error::Damaged {
            path: FILE.into(),
            why,
        };
        // The format first: another one may have another checksum.
        let head: Head = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if head.format > FORMAT {
            return Err(Error::Newer {
                found: head.format,
                known: FORMAT,
                version: head.version,
            });
        }
        let expected = fs::read_to_string(&sum).at("read", &sum)?;
        if expected.trim() != blake3::hash(&text).to_hex().as_str() {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        match manifest.misplaced() {
            Some(why) => Err(damaged(why)),
            None => Ok(manifest),
        }
    }

    /// What would be restored to another place than its own. A layer may hold links to anywhere, so
    /// nothing else goes below it.
    fn misplaced(&self) -> Option<String> {
        let mut targets = HashSet::new();
        let mut layers = HashSet::new();
        for file in &self.files {
            let path = file.path.display();
            if !is_below(&file.path) {
                return Some(format!("{path} is outside of the backup"));
            }
            if !targets.insert(file.target()) {
                return Some(format!("{path} is in it twice"));
            }
            if file.kind == FileKind::Folder {
                layers.insert(file.target());
            }
        }
        let inside = |target: &PathBuf| {
            target
                .ancestors()
                .skip(1)
                .any(|above| layers.contains(above))
        };
        if let Some(target) = targets.iter().find(|target| inside(target)) {
            return Some(format!("{} is inside of a layer", target.display()));
        }
        let is_name = |name: &String| is_below(name.as_ref()) && !name.contains('/');
        let volume = self.volumes.iter().find(|name| !is_name(name))?;
        Some(format!("{volume:?} is not the id of a volume"))
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(std::io::Error::other)
            .at("write", &path)?;
        let sum = format!("{}\n", blake3::hash(&text).to_hex());
        soulbox_durable::write(&folder.join(SUM), 0o600, sum.as_bytes()).at("write", &path)?;
        soulbox_durable::write(&path, 0o600, &text).at("write", &path)
    }

    /// What its files hold.
    pub fn bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|file| file.bytes);
        sizes.fold(0, u64::saturating_add)
    }
}

/// Names only: neither absolute, nor upwards.
pub(crate) fn is_below(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, kind: FileKind) -> FileEntry {
        FileEntry {
            path: path.into(),
            kind,
            mode: 0o600,
            length: 1,
            bytes: u64::MAX,
            checksum: String::new(),
            unchanging: None,
        }
    }

    fn manifest(files: Vec<FileEntry>, volumes: &[&str]) -> Manifest {
        Manifest {
            format: FORMAT,
            version: String::new(),
            created_at: UnixMillis::now(),
            data_dir: "/data".into(),
            host: String::new(),
            sandboxes: Vec::new(),
            snapshots: Vec::new(),
            volumes: volumes.iter().map(|&name| name.to_owned()).collect(),
            builds: Vec::new(),
            left_out: Vec::new(),
            files,
        }
    }

    #[test]
    fn what_would_be_restored_elsewhere_is_refused_before_anything_is_written() {
        let layer = || file("layers/a.tar", FileKind::Folder);
        let plain = |path| file(path, FileKind::File);
        let cases = [
            (vec![plain("../x")], vec![], "outside"),
            (vec![plain("/etc/x")], vec![], "outside"),
            (vec![plain("a"), plain("a")], vec![], "twice"),
            (vec![layer(), plain("layers/a")], vec![], "twice"),
            (
                vec![layer(), plain("layers/a/out/f")],
                vec![],
                "inside of a layer",
            ),
            (
                vec![plain("layers/a/out/f"), layer()],
                vec![],
                "inside of a layer",
            ),
            (vec![], vec!["../../x"], "not the id"),
            (vec![], vec!["a/b"], "not the id"),
        ];
        for (files, volumes, expected) in cases {
            let manifest = manifest(files, &volumes);
            let why = manifest.misplaced().unwrap();
            assert!(why.contains(expected), "{expected}: {why}");
        }
        let fine = manifest(vec![layer(), plain("layers/b")], &["v1"]);
        assert_eq!(fine.misplaced(), None);
        assert_eq!(
            fine.bytes(),
            u64::MAX,
            "sizes that make no sense are no panic"
        );
    }
}
