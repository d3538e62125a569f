//! Servers that a user has logged in to, each with its key: `contexts.json` in the user's folder.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use soulbox_types::Secret;

const FILE: &str = "contexts.json";
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contexts {
    /// The one that counts when nothing else is said.
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub api_url: String,
    /// Where traffic into sandboxes goes, if elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_url: Option<String>,
    pub api_key: Secret,
    /// The server's own authority, in PEM, which the user has compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// Where this user's settings of ours are.
pub fn user_folder(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))
        .map(|folder| folder.join("soulbox"))
}

pub fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// For those who take certificates by path.
pub fn ca_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.ca.pem"))
}

/// It becomes a part of file names and of shell lines.
pub fn is_name(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty()
        && name.len() <= 100
        && name.bytes().all(valid)
        && !name.starts_with(['.', '-'])
}

impl Contexts {
    /// Empty where there is no file.
    pub fn load(folder: &Path) -> io::Result<Self> {
        match std::fs::read(file(folder)) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// In one step each: another command may read them meanwhile.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_FOLDER)
            .create(folder)?;
        for (name, context) in &self.contexts {
            if let Some(ca) = &context.ca {
                replace(&ca_file(folder, name), ca.as_bytes())?;
            }
        }
        replace(&file(folder), &serde_json::to_vec_pretty(self)?)
    }

    /// The name that is given, or the current one.
    pub fn find(&self, name: Option<&str>) -> Option<(&str, &Context)> {
        let name = name.or(self.current.as_deref())?;
        let (name, context) = self.contexts.get_key_value(name)?;
        Some((name, context))
    }

    pub fn remove(&mut self, folder: &Path, name: &str) -> io::Result<bool> {
        if self.contexts.remove(name).is_none() {
            return Ok(false);
        }
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
        self.save(folder)?;
        match std::fs::remove_file(ca_file(folder, name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(true),
        }
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE_FILE)
        .open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn context(ca: Option<&str>) -> Context {
        Context {
            api_url: "https://api.sbx.example".to_owned(),
            sandbox_url: None,
            api_key: Secret::new("e2b_1"),
            ca: ca.map(str::to_owned),
        }
    }

    #[test]
    fn they_are_kept_for_their_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/soulbox");
        assert_eq!(Contexts::load(&folder).unwrap(), Contexts::default());
        let mut contexts = Contexts {
            current: Some("a".to_owned()),
            contexts: [
                ("a".to_owned(), context(Some("PEM"))),
                ("b".to_owned(), context(None)),
            ]
            .into(),
        };
        contexts.save(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file(&folder))), (0o700, 0o600));
        assert_eq!(
            std::fs::read_to_string(ca_file(&folder, "a")).unwrap(),
            "PEM"
        );
        assert_eq!(Contexts::load(&folder).unwrap(), contexts);
        assert_eq!(contexts.find(None).unwrap().0, "a");
        assert_eq!(contexts.find(Some("b")).unwrap().0, "b");

        assert!(contexts.remove(&folder, "a").unwrap());
        assert!(!contexts.remove(&folder, "a").unwrap());
        assert_eq!(contexts.find(None), None);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_name_is_never_a_path_or_an_option() {
        for bad in ["", "a/b", "..", "-x", "a b", ".hidden"] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_name("sbx.example.com") && is_name("work_2"));
    }
}
