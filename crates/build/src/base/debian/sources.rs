//! Which Debian this machine gets its packages from.

use std::path::{Path, PathBuf};

use crate::problem::{Problem, Result};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sources {
    /// `bookworm`.
    pub(super) suite: String,
    /// In `sources.list`'s one-line form.
    pub(super) lines: Vec<String>,
}

/// Blocking.
pub(super) fn of_this_machine() -> Result<Sources> {
    of(Path::new("/"))
}

fn of(root: &Path) -> Result<Sources> {
    let release = std::fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
    let suite = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            Problem::user("the server is no Debian or Ubuntu, so it has no Debian packages; start from an image")
        })?;
    let mut lines = Vec::new();
    for path in files(&root.join("etc/apt")) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if path.extension().is_some_and(|ending| ending == "sources") {
            stanzas(&text, &suite, &mut lines);
        } else {
            one_liners(&text, &suite, &mut lines);
        }
    }
    if lines.is_empty() {
        return Err(Problem::user(format!(
            "the server's /etc/apt names no source of packages for {suite}"
        )));
    }
    Ok(Sources { suite, lines })
}

fn files(apt: &Path) -> Vec<PathBuf> {
    let mut files = vec![apt.join("sources.list")];
    let parts = std::fs::read_dir(apt.join("sources.list.d"));
    let parts = parts
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut parts: Vec<_> = parts
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "list" || e == "sources")
        })
        .collect();
    parts.sort();
    files.append(&mut parts);
    files
}

/// `bookworm`, `bookworm-updates`, `bookworm-security`: not those of others who make packages for it.
fn belongs(candidate: &str, suite: &str) -> bool {
    candidate
        .strip_prefix(suite)
        .is_some_and(|rest| matches!(rest, "" | "-updates" | "-security" | "/updates"))
}

fn one_liners(text: &str, suite: &str, lines: &mut Vec<String>) {
    for line in text.lines().map(str::trim) {
        let Some(rest) = line.strip_prefix("deb ") else {
            continue;
        };
        let rest = match rest.trim_start().strip_prefix('[') {
            Some(options) => options.split_once(']').map_or("", |(_, rest)| rest),
            None => rest,
        };
        if rest
            .split_whitespace()
            .nth(1)
            .is_some_and(|name| belongs(name, suite))
        {
            lines.push(line.to_owned());
        }
    }
}

fn stanzas(text: &str, suite: &str, lines: &mut Vec<String>) {
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let off = field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
        let binary = field("Types").is_some_and(|t| t.split_whitespace().any(|t| t == "deb"));
        if off || !binary {
            continue;
        }
        let (Some(uris), Some(suites)) = (field("URIs"), field("Suites")) else {
            continue;
        };
        let components = field("Components").unwrap_or_else(|| "main".to_owned());
        let signed = field("Signed-By")
            .filter(|path| path.starts_with('/'))
            .map_or_else(String::new, |path| format!("[signed-by={path}] "));
        for uri in uris.split_whitespace() {
            for name in suites
                .split_whitespace()
                .filter(|name| belongs(name, suite))
            {
                lines.push(format!("deb {signed}{uri} {name} {components}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Result<Sources> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
        of(root.path())
    }

    const RELEASE: (&str, &str) = ("etc/os-release", "ID=debian\nVERSION_CODENAME=bookworm\n");

    #[test]
    fn the_distributions_own_sources_are_found_in_both_forms() {
        let stanza = "Types: deb deb-src\n# a comment: here\nURIs: http://deb/debian\n\
            Suites: bookworm bookworm-updates bookworm-backports\nComponents: main contrib\n\
            Signed-By: /usr/share/keyrings/debian.gpg\n\n\
            Types: deb\nURIs: https://other\nSuites: nodistro\nComponents: main\n\n\
            Types: deb\nEnabled: no\nURIs: http://off\nSuites: bookworm\n";
        let list = "# deb http://no bookworm main\ndeb [arch=amd64] http://sec bookworm-security main\n\
            deb https://packages.example cloud-bookworm main\ndeb-src http://src bookworm main\n";
        let sources = machine(&[
            RELEASE,
            ("etc/apt/sources.list.d/debian.sources", stanza),
            ("etc/apt/sources.list", list),
        ])
        .unwrap();
        assert_eq!(
            sources.lines,
            [
                "deb [arch=amd64] http://sec bookworm-security main",
                "deb [signed-by=/usr/share/keyrings/debian.gpg] http://deb/debian bookworm main contrib",
                "deb [signed-by=/usr/share/keyrings/debian.gpg] http://deb/debian bookworm-updates main contrib",
            ]
        );
    }

    #[test]
    fn a_machine_without_debian_says_so() {
        let error = machine(&[("etc/os-release", "ID=alpine\n")]).unwrap_err();
        assert!(error.to_string().contains("no Debian"), "{error}");
        let error = machine(&[RELEASE]).unwrap_err();
        assert!(error.to_string().contains("names no source"), "{error}");
    }
}
