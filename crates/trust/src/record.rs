//! What was done to this machine. Written before the first change, so that one that was interrupted is
//! undone as well; removed after the last is undone.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::{At, Change, Command, Plan, Result, run, store::under};

const FOLDER: &str = "/var/lib/soulbox-trust";
const PUBLIC: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub domain: String,
    files: Vec<Done>,
    /// Folders that were made for them, outermost first.
    folders: Vec<PathBuf>,
    /// Run after they are undone.
    after_undo: Vec<Command>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Done {
    /// `before`: of a file that somebody else had put there.
    Added {
        path: PathBuf,
        content: String,
        before: Option<String>,
    },
    Prepended {
        path: PathBuf,
        lines: String,
        /// `None`: there was no file.
        before: Option<String>,
    },
}

/// What undoing did with one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    Restored(PathBuf),
    /// It was changed by others since: only what is surely ours was taken out.
    Cut(PathBuf),
    /// It was changed by others since, and is left as it is.
    Left(PathBuf),
}

impl Record {
    /// All that there are.
    pub fn all(root: &Path) -> Result<Vec<Self>> {
        let folder = under(root, FOLDER);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.at(&folder)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.at(&folder)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let text = fs::read_to_string(&path).at(&path)?;
                let record = serde_json::from_str(&text).map_err(io::Error::from);
                found.push(record.at(&path)?);
            }
        }
        found.sort_by(|one: &Self, other| one.domain.cmp(&other.domain));
        Ok(found)
    }

    pub fn of(root: &Path, domain: &str) -> Result<Option<Self>> {
        let all = Self::all(root)?;
        Ok(all.into_iter().find(|record| record.domain == domain))
    }

    /// Whether everything is still as it was left.
    pub fn holds(&self, root: &Path) -> bool {
        self.files.iter().all(|done| match done {
            Done::Added { path, content, .. } => {
                read(&place(root, path)).is_ok_and(|there| there.as_ref() == Some(content))
            }
            Done::Prepended { path, lines, .. } => read(&place(root, path))
                .is_ok_and(|there| there.is_some_and(|text| text.contains(lines.as_str()))),
        })
    }

    /// Whether this certificate is what was installed.
    pub fn has(&self, ca: &str) -> bool {
        let is = |done: &Done| matches!(done, Done::Added { content, .. } if content == ca);
        self.files.iter().any(is)
    }

    pub fn paths(&self) -> Vec<&Path> {
        let path = |done| match done {
            &Done::Added { ref path, .. } | &Done::Prepended { ref path, .. } => path.as_path(),
        };
        self.files.iter().map(path).collect()
    }

    /// Carries the plan out. On an error what was done stays recorded: `undo` takes it back.
    pub fn carry_out(root: &Path, domain: &str, plan: &Plan) -> Result<Self> {
        let mut record = Self {
            domain: domain.to_owned(),
            files: Vec::new(),
            folders: Vec::new(),
            after_undo: Vec::new(),
        };
        for part in &plan.parts {
            for change in &part.changes {
                let path = change.path().to_owned();
                record.folders.extend(missing_folders(root, &path));
                let before = read(&place(root, &path)).at(&path)?;
                record.files.push(match change {
                    Change::Add { content, .. } => Done::Added {
                        path,
                        content: content.clone(),
                        before,
                    },
                    Change::Prepend { lines, .. } => Done::Prepended {
                        path,
                        lines: lines.clone(),
                        before,
                    },
                });
            }
            record.after_undo.extend(part.after_undo.iter().cloned());
        }
        record.folders.dedup();
        record.write(root)?;
        for folder in &record.folders {
            soulbox_durable::make_folder(&place(root, folder), FOLDER_MODE).at(folder)?;
        }
        for done in &record.files {
            let (path, text) = match done {
                Done::Added { path, content, .. } => (path, content.clone()),
                Done::Prepended {
                    path,
                    lines,
                    before,
                } => (path, prepended(lines, before.as_deref())),
            };
            overwrite(&place(root, path), &text).at(path)?;
        }
        for command in plan.parts.iter().flat_map(|part| &part.after) {
            run(command)?;
        }
        Ok(record)
    }

    /// Takes everything back that is still as it was left, and forgets it.
    pub fn undo(&self, root: &Path) -> Result<Vec<Undone>> {
        let mut undone = Vec::new();
        for done in self.files.iter().rev() {
            undone.push(done.undo(root)?);
        }
        for folder in self.folders.iter().rev() {
            // Others may have put something there.
            fs::remove_dir(place(root, folder)).ok();
        }
        for command in &self.after_undo {
            run(command)?;
        }
        let path = self.place(root);
        soulbox_durable::remove(&path).at(&path)?;
        fs::remove_dir(under(root, FOLDER)).ok();
        Ok(undone)
    }

    fn write(&self, root: &Path) -> Result<()> {
        let path = self.place(root);
        soulbox_durable::make_folder(&under(root, FOLDER), FOLDER_MODE).at(&path)?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        soulbox_durable::write(&path, PUBLIC, &text.at(&path)?).at(&path)
    }

    fn place(&self, root: &Path) -> PathBuf {
        under(root, FOLDER).join(format!("{}.json", self.domain))
    }
}

impl Done {
    fn undo(&self, root: &Path) -> Result<Undone> {
        let (path, written, before) = match self {
            Self::Added {
                path,
                content,
                before,
            } => (path, content.clone(), before),
            Self::Prepended {
                path,
                lines,
                before,
            } => (path, prepended(lines, before.as_deref()), before),
        };
        let place = place(root, path);
        let there = read(&place).at(path)?;
        if there == *before {
            return Ok(Undone::Restored(path.clone()));
        }
        if there.as_ref() == Some(&written) {
            match before {
                Some(before) => overwrite(&place, before).at(path)?,
                None => soulbox_durable::remove(&place).at(path)?,
            }
            return Ok(Undone::Restored(path.clone()));
        }
        if let (Self::Prepended { lines, .. }, Some(text)) = (self, &there)
            && text.contains(lines.as_str())
        {
            overwrite(&place, &text.replacen(lines.as_str(), "", 1)).at(path)?;
            return Ok(Undone::Cut(path.clone()));
        }
        Ok(Undone::Left(path.clone()))
    }
}

fn prepended(lines: &str, before: Option<&str>) -> String {
    format!("{lines}{}", before.unwrap_or_default())
}

fn place(root: &Path, path: &Path) -> PathBuf {
    under(root, &path.to_string_lossy())
}

fn missing_folders(root: &Path, path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1);
    let missing = above.take_while(|folder| !place(root, folder).is_dir());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// In place: the file may be a mount point, as in containers, or a link, and has an owner and a mode.
fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    const RESOLV: &str = "/etc/resolv.conf";

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::create_dir_all(root.path().join("var/lib")).unwrap();
        fs::write(
            root.path().join("etc/resolv.conf"),
            "nameserver 192.0.2.1\n",
        )
        .unwrap();
        root
    }

    fn plan() -> Plan {
        let part = Part {
            what: "both".to_owned(),
            changes: vec![
                Change::Add {
                    path: "/usr/local/share/x.crt".into(),
                    content: "ca".to_owned(),
                },
                Change::Prepend {
                    path: RESOLV.into(),
                    lines: "# ours\nnameserver 127.0.83.66\n".to_owned(),
                },
            ],
            after: vec![Command::new("true", &[])],
            after_undo: vec![Command::new("true", &[])],
            relies_on: None,
        };
        Plan {
            parts: vec![part],
            notes: Vec::new(),
        }
    }

    /// Every path with what is in it.
    fn everything(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let content = path.is_file().then(|| fs::read(&path).unwrap());
                if content.is_none() {
                    folders.push(path.clone());
                }
                found.push((path, content));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_was_done_is_undone_to_the_byte() {
        let root = machine();
        let before = everything(root.path());
        let record = Record::carry_out(root.path(), "sbx.test", &plan()).unwrap();
        let resolv = fs::read_to_string(root.path().join("etc/resolv.conf")).unwrap();
        assert_eq!(
            resolv,
            "# ours\nnameserver 127.0.83.66\nnameserver 192.0.2.1\n"
        );
        assert!(record.holds(root.path()) && record.has("ca") && !record.has("other"));
        let found = Record::of(root.path(), "sbx.test").unwrap();
        assert_eq!(found.as_ref(), Some(&record));
        record.undo(root.path()).unwrap();
        assert_eq!(everything(root.path()), before);
        assert_eq!(Record::all(root.path()).unwrap(), []);
    }

    #[test]
    fn what_others_changed_since_is_not_lost() {
        let root = machine();
        let record = Record::carry_out(root.path(), "sbx.test", &plan()).unwrap();
        let resolv = root.path().join("etc/resolv.conf");
        let text = fs::read_to_string(&resolv).unwrap();
        fs::write(&resolv, format!("search lan\n{text}")).unwrap();
        fs::write(
            root.path().join("usr/local/share/x.crt"),
            "of somebody else",
        )
        .unwrap();
        let undone = record.undo(root.path()).unwrap();
        assert!(
            matches!(&undone[..], [Undone::Cut(_), Undone::Left(_)]),
            "{undone:?}"
        );
        assert_eq!(
            fs::read_to_string(&resolv).unwrap(),
            "search lan\nnameserver 192.0.2.1\n"
        );
    }

    #[test]
    fn an_interrupted_change_is_undone_too() {
        let root = machine();
        let before = everything(root.path());
        let mut failing = plan();
        failing.parts[0].after = vec![Command::new("false", &[])];
        Record::carry_out(root.path(), "sbx.test", &failing).unwrap_err();
        let record = Record::of(root.path(), "sbx.test").unwrap().unwrap();
        record.undo(root.path()).unwrap();
        assert_eq!(everything(root.path()), before);
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_stays_one() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = machine();
        let (real, link) = (
            root.path().join("etc/real.conf"),
            root.path().join("etc/resolv.conf"),
        );
        fs::rename(&link, &real).unwrap();
        fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.conf", &link).unwrap();
        let record = Record::carry_out(root.path(), "sbx.test", &plan()).unwrap();
        record.undo(root.path()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::metadata(&real).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }
}
