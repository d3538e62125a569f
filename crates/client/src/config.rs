//! Where the server is and which key to show it.
//!
//! Flags come first, then `SOULBOX_*`, then E2B's own variables, then the server that the user has logged in
//! to, then the `env` file that `soulbox serve` writes into its data folder: on the server's machine nothing
//! needs to be set.
//!
//! A data folder that is named by flag means the server of that folder and no other: whatever else
//! the environment has loaded, a `kill --all` must not reach another server than the one named.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

use soulbox_types::Secret;

pub use crate::base_url::{BaseUrl, InvalidUrl};
use crate::contexts::{self, Contexts};
use env_file::parse;

mod env_file;

pub const DEFAULT_DATA_DIR: &str = "/var/lib/soulbox";
const DEFAULT_API_URL: &str = "http://127.0.0.1:3000";

/// What the command line gave.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub api_url: Option<String>,
    pub api_key: Option<Secret>,
    /// Takes from this folder what the other two leave open, and nothing from the environment.
    pub data_dir: Option<PathBuf>,
    /// Takes everything from this context, and nothing from the environment.
    pub context: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub api_url: BaseUrl,
    /// Where traffic into sandboxes goes, with routing headers.
    pub sandbox_url: BaseUrl,
    pub api_key: Secret,
    /// So that a refusal can say which key was refused.
    pub key_source: Source,
    /// A certificate authority of the server's own, which the user trusts.
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Flag(&'static str),
    Variable(&'static str),
    File(PathBuf),
    Context(String),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Context(name) => write!(f, "the context {name}"),
            Self::Default => f.write_str("the default"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("no API key: neither --api-key nor SOULBOX_API_KEY nor E2B_API_KEY is set, and there is no {}", .file.display())]
    NoKey { file: PathBuf },
    /// The folder was named by flag, so no other server will do.
    #[error("no server keeps its data in {}: there is no file `env` in it", .folder.display())]
    NoServer { folder: PathBuf },
    #[error("cannot read {}", .file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} has no E2B_API_KEY line", .file.display())]
    Incomplete { file: PathBuf },
    #[error("{} has no E2B_API_URL line", .file.display())]
    NoAddress { file: PathBuf },
    #[error("there is no context {name}")]
    NoContext { name: String },
    #[error("the address from {from} is wrong")]
    Url {
        from: Source,
        #[source]
        source: InvalidUrl,
    },
}

impl ConfigError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoKey { .. } => {
                "start `soulbox serve` here (it makes a key), name its folder with --data-dir, or \
                 set E2B_API_URL and E2B_API_KEY for a server elsewhere"
            }
            Self::NoServer { .. } => {
                "name the folder that `soulbox serve --data-dir` was started with; without \
                 --data-dir the environment or the default folder counts"
            }
            Self::Unreadable { .. } => {
                "the file holds a key and belongs to the server's user: use sudo, or say \
                 --api-url and --api-key"
            }
            Self::Incomplete { .. } => {
                "its key was deleted: `soulbox key create NAME --offline` makes one, to be given \
                 with --api-key"
            }
            Self::NoAddress { .. } => {
                "`soulbox serve` writes the line when it starts; until then say --api-url"
            }
            Self::NoContext { .. } => {
                "`soulbox context ls` shows those that there are, `soulbox login URL` makes one"
            }
            Self::Url { .. } => "an address looks like http://127.0.0.1:3000",
        }
    }
}

impl Config {
    /// `variable` looks up the environment (a parameter, so that tests need not change theirs).
    pub fn resolve(
        flags: &Flags,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        if let Some((folder, name)) = chosen_context(flags, &variable)? {
            return Self::of_context(&folder, &name);
        }
        let named = flags.data_dir.is_some();
        let variable = |name: &str| variable(name).filter(|value| !named && !value.is_empty());
        let file = data_dir(flags, variable).join("env");
        let mut lazy = LazyFile {
            path: &file,
            content: None,
        };
        if named && (flags.api_key.is_none() || flags.api_url.is_none()) {
            lazy.read().map_err(|error| match error {
                ConfigError::NoKey { .. } => ConfigError::NoServer {
                    folder: data_dir(flags, variable),
                },
                other => other,
            })?;
        }

        let (api_key, key_source) = match &flags.api_key {
            Some(key) => (key.clone(), Source::Flag("--api-key")),
            None => match first(variable, ["SOULBOX_API_KEY", "E2B_API_KEY"]) {
                Some((key, source)) => (Secret::new(key), source),
                None => (lazy.required_key()?, Source::File(file.clone())),
            },
        };
        let (url, url_source) = match &flags.api_url {
            Some(url) => (url.clone(), Source::Flag("--api-url")),
            None => match first(variable, ["SOULBOX_API_URL", "E2B_API_URL"]) {
                Some(found) => found,
                None => match variable("E2B_DOMAIN") {
                    Some(domain) => (
                        format!("https://api.{domain}"),
                        Source::Variable("E2B_DOMAIN"),
                    ),
                    None => match lazy.optional("E2B_API_URL") {
                        Some(url) => (url, Source::File(file.clone())),
                        // Where the server of this key is must not be guessed.
                        None if named || matches!(key_source, Source::File(_)) => {
                            return Err(ConfigError::NoAddress { file });
                        }
                        None => (DEFAULT_API_URL.to_owned(), Source::Default),
                    },
                },
            },
        };
        let api_url = parse_url(&url, &url_source)?;

        // The data plane belongs to the same server: a flag takes it along.
        let sandbox_url = match &url_source {
            Source::Flag(_) => None,
            _ => first(variable, ["SOULBOX_SANDBOX_URL", "E2B_SANDBOX_URL"]),
        };
        let sandbox_url = sandbox_url.or_else(|| match &url_source {
            Source::File(path) => lazy
                .optional("E2B_SANDBOX_URL")
                .map(|url| (url, Source::File(path.clone()))),
            _ => None,
        });
        let sandbox_url = match sandbox_url {
            Some((url, source)) => parse_url(&url, &source)?,
            None => api_url.clone(),
        };
        Ok(Self {
            api_url,
            sandbox_url,
            api_key,
            key_source,
            ca: None,
        })
    }

    /// Key and addresses belong together: nothing else is looked at.
    fn of_context(folder: &Path, name: &str) -> Result<Self, ConfigError> {
        let contexts = load_contexts(folder)?;
        let Some((name, context)) = contexts.find(Some(name)) else {
            let name = name.to_owned();
            return Err(ConfigError::NoContext { name });
        };
        let source = Source::Context(name.to_owned());
        let api_url = parse_url(&context.api_url, &source)?;
        let sandbox_url = match &context.sandbox_url {
            Some(url) => parse_url(url, &source)?,
            None => api_url.clone(),
        };
        let ca = context.ca.as_ref().map(|_| contexts::ca_file(folder, name));
        Ok(Self {
            api_url,
            sandbox_url,
            api_key: context.api_key.clone(),
            key_source: source,
            ca,
        })
    }
}

/// The context that counts, with the folder that it is in. One by flag before everything; one by variable after
/// our own variables; the current one after all variables.
fn chosen_context(
    flags: &Flags,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is_set = |names: &[&str]| names.iter().any(|name| variable(name).is_some());
    let folder = || contexts::user_folder(variable);
    if let Some(name) = &flags.context {
        let name = name.clone();
        return match folder() {
            Some(folder) => Ok(Some((folder, name))),
            None => Err(ConfigError::NoContext { name }),
        };
    }
    let by_flag = flags.api_url.is_some() || flags.api_key.is_some() || flags.data_dir.is_some();
    if by_flag || is_set(&["SOULBOX_API_URL", "SOULBOX_API_KEY"]) {
        return Ok(None);
    }
    if let Some(name) = variable("SOULBOX_CONTEXT") {
        return match folder() {
            Some(folder) => Ok(Some((folder, name))),
            None => Err(ConfigError::NoContext { name }),
        };
    }
    if is_set(&[
        "E2B_API_URL",
        "E2B_API_KEY",
        "E2B_DOMAIN",
        "SOULBOX_DATA_DIR",
    ]) {
        return Ok(None);
    }
    let Some(folder) = folder() else {
        return Ok(None);
    };
    let current = load_contexts(&folder)?.current;
    Ok(current.map(|name| (folder, name)))
}

fn load_contexts(folder: &Path) -> Result<Contexts, ConfigError> {
    Contexts::load(folder).map_err(|source| ConfigError::Unreadable {
        file: contexts::file(folder),
        source,
    })
}

/// The server's folder, by flag, variable or default.
pub fn data_dir(flags: &Flags, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    flags
        .data_dir
        .clone()
        .or_else(|| variable("SOULBOX_DATA_DIR").map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR))
}

fn first<const N: usize>(
    variable: impl Fn(&str) -> Option<String>,
    names: [&'static str; N],
) -> Option<(String, Source)> {
    names
        .into_iter()
        .find_map(|name| Some((variable(name)?, Source::Variable(name))))
}

fn parse_url(url: &str, from: &Source) -> Result<BaseUrl, ConfigError> {
    url.parse().map_err(|source| ConfigError::Url {
        from: from.clone(),
        source,
    })
}

/// The `env` file, read only when something is asked of it: with everything in the environment it
/// may well be unreadable.
struct LazyFile<'a> {
    path: &'a Path,
    content: Option<BTreeMap<String, String>>,
}

impl LazyFile<'_> {
    fn read(&mut self) -> Result<&BTreeMap<String, String>, ConfigError> {
        let file = || self.path.to_owned();
        let text = std::fs::read_to_string(self.path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                ConfigError::NoKey { file: file() }
            }
            _ => ConfigError::Unreadable {
                file: file(),
                source,
            },
        })?;
        Ok(self.content.insert(parse(&text)))
    }

    fn required_key(&mut self) -> Result<Secret, ConfigError> {
        let file = self.path.to_owned();
        self.read()?
            .get("E2B_API_KEY")
            .map(Secret::new)
            .ok_or(ConfigError::Incomplete { file })
    }

    fn optional(&mut self, key: &str) -> Option<String> {
        let path = self.path;
        let content = self.content.get_or_insert_with(|| {
            std::fs::read_to_string(path)
                .map(|text| parse(&text))
                .unwrap_or_default()
        });
        content.get(key).cloned()
    }
}

#[cfg(test)]
mod tests;
