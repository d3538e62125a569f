//! The state after a step besides files: environment, user, working directory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use soulbox_template::Template;

pub(crate) const STANDARD_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
pub(crate) const DEFAULT_USER: &str = "user";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: String,
    /// `None`: the home of whoever runs a command.
    pub(crate) workdir: Option<String>,
}

impl State {
    pub(crate) fn of_template(template: &Template) -> Self {
        Self {
            env: template.env.clone(),
            user: template.default_user.clone(),
            workdir: Some(template.default_workdir.clone()).filter(|path| !path.is_empty()),
        }
    }

    /// The variables of commands, and of sandboxes of the finished template.
    pub(crate) fn command_env(&self) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        let path = env.entry("PATH".to_owned()).or_default();
        *path = with_standard_directories(path);
        env
    }

    /// `path` as an absolute one. `home` stands for the working directory where none was set.
    pub(crate) fn resolve(&self, path: &str, home: &str) -> String {
        if path.starts_with('/') {
            return clean(path);
        }
        let base = self.workdir.as_deref().unwrap_or(home);
        clean(&format!("{base}/{path}"))
    }
}

/// A `PATH` that somebody set must not lose `ls`.
fn with_standard_directories(path: &str) -> String {
    let mut directories: Vec<&str> = path.split(':').filter(|part| !part.is_empty()).collect();
    for standard in STANDARD_PATH.split(':') {
        if !directories.contains(&standard) {
            directories.push(standard);
        }
    }
    directories.join(":")
}

/// Without `.`, `..` and doubled slashes. Links are resolved inside the sandbox.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(workdir: Option<&str>, path: &str) -> State {
        State {
            env: [("PATH".to_owned(), path.to_owned())].into(),
            user: DEFAULT_USER.to_owned(),
            workdir: workdir.map(str::to_owned),
        }
    }

    #[test]
    fn a_path_keeps_its_order_and_gains_what_is_missing() {
        let path = |text| state(None, text).command_env()["PATH"].clone();
        assert_eq!(path(""), STANDARD_PATH);
        assert_eq!(path(STANDARD_PATH), STANDARD_PATH);
        assert_eq!(
            path("/opt/venv/bin:/usr/bin"),
            "/opt/venv/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
        );
    }

    #[test]
    fn relative_paths_start_at_the_working_directory() {
        let set = state(Some("/app"), "");
        assert_eq!(set.resolve("x/../y/./z", "/"), "/app/y/z");
        assert_eq!(set.resolve(".", "/"), "/app");
        assert_eq!(set.resolve("/a//b/", "/"), "/a/b");
        assert_eq!(set.resolve("../../..", "/"), "/");
        assert_eq!(state(None, "").resolve("x", "/home/user"), "/home/user/x");
    }
}
