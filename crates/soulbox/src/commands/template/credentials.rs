//! How to sign in to the registry of an image: from the command line, or from Docker's own file.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use soulbox_client::model::templates::Registry;
use soulbox_types::Secret;

use crate::{
    args::RegistryArgs,
    context::variable,
    report::{advice, warning},
};

const HUB_KEYS: [&str; 4] = [
    "https://index.docker.io/v1/",
    "index.docker.io",
    "docker.io",
    "registry-1.docker.io",
];
/// The longest password that anybody has: tokens are some kilobytes.
const LONGEST_PASSWORD: u64 = 64 << 10;

/// Where to find the credentials of images.
#[derive(Debug)]
pub(super) struct RegistryCredentials {
    given: Option<(String, Secret)>,
    docker: Option<Value>,
}

impl RegistryCredentials {
    pub(super) fn open(args: &RegistryArgs) -> Result<Self> {
        let given = match &args.registry_username {
            Some(username) => Some((username.clone(), password_from_stdin()?)),
            None => None,
        };
        Ok(Self {
            given,
            docker: docker_file().and_then(|file| read(&file)),
        })
    }

    pub(super) fn of(&self, image: &str) -> Option<Registry> {
        let (username, password) = match &self.given {
            Some(given) => given.clone(),
            None => from_docker(self.docker.as_ref()?, image)?,
        };
        Some(Registry::Registry { username, password })
    }
}

fn password_from_stdin() -> Result<Secret> {
    let mut password = String::new();
    std::io::stdin()
        .lock()
        .take(LONGEST_PASSWORD)
        .read_to_string(&mut password)
        .context("the password on standard input")?;
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let hint = "for example: --registry-password-stdin < token";
        return Err(advice("there is no password on standard input", hint));
    }
    Ok(Secret::new(password))
}

fn docker_file() -> Option<PathBuf> {
    let folder = match variable("DOCKER_CONFIG") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(variable("HOME")?).join(".docker"),
    };
    Some(folder.join("config.json"))
}

fn read(file: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(file).ok()?;
    match serde_json::from_str(&text) {
        Ok(value) => Some(value),
        Err(error) => {
            // The message of the error would not show content, but where it is.
            warning(&format!("{} cannot be read: {error}", file.display()));
            None
        }
    }
}

fn from_docker(config: &Value, image: &str) -> Option<(String, Secret)> {
    let auths = config.get("auths")?.as_object()?;
    let host = registry(image);
    let entry = match host {
        Some(host) => auths.iter().find(|(key, _)| host_of(key) == host),
        None => auths
            .iter()
            .find(|(key, _)| HUB_KEYS.contains(&key.as_str())),
    };
    let entry = entry?.1;
    if let Some(auth) = entry.get("auth").and_then(Value::as_str) {
        let decoded = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
        let (username, password) = decoded.split_once(':')?;
        return Some((username.to_owned(), Secret::new(password)));
    }
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    Some((text("username")?.to_owned(), Secret::new(text("password")?)))
}

/// `None`: Docker's own.
fn registry(image: &str) -> Option<&str> {
    let (first, _) = image.split_once('/')?;
    let is_host = first.contains(['.', ':']) || first == "localhost";
    let is_hub = matches!(first, "docker.io" | "index.docker.io");
    (is_host && !is_hub).then_some(first)
}

fn host_of(key: &str) -> &str {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    key.split('/').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dockers_file_has_credentials_by_registry() {
        let config = json!({"auths": {
            "https://index.docker.io/v1/": {"auth": STANDARD.encode("hub:pw:1")},
            "https://ghcr.io": {"auth": STANDARD.encode("gh:token")},
            "localhost:5000": {"username": "l", "password": "p"},
            "empty.example": {},
        }});
        let find = |image: &str| {
            from_docker(&config, image).map(|(user, password)| {
                let password = password.expose().to_owned();
                (user, password)
            })
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(find("debian:12"), pair("hub", "pw:1"));
        assert_eq!(find("acme/app"), pair("hub", "pw:1"));
        assert_eq!(find("docker.io/acme/app"), pair("hub", "pw:1"));
        assert_eq!(find("ghcr.io/acme/app:1"), pair("gh", "token"));
        assert_eq!(find("localhost:5000/x"), pair("l", "p"));
        assert_eq!(find("quay.io/x/y"), None);
        assert_eq!(find("empty.example/x"), None);
    }
}
