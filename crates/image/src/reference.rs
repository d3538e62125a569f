//! Names of images, read as Docker reads them.

use std::fmt;

use crate::{Error, Result, digest::Digest};

pub(crate) const DOCKER_HUB: &str = "docker.io";
const MAX_LENGTH: usize = 1024;
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// `host[:port]`, lower case.
    pub(crate) registry: String,
    pub(crate) repository: String,
    pub(crate) tag: Option<String>,
    pub(crate) digest: Option<Digest>,
}

impl Reference {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = |reason: &str| Error::Reference {
            reference: text.chars().take(200).collect(),
            reason: reason.to_owned(),
        };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.len() > MAX_LENGTH {
            return Err(bad("it is too long"));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = Digest::parse(digest);
                let digest = digest.ok_or_else(|| bad("after @ goes a sha256 digest"))?;
                (name, Some(digest))
            }
            None => (text, None),
        };
        // A colon before the last slash belongs to the registry's port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("its tag has characters that tags cannot have"));
        }
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first.to_ascii_lowercase(), rest),
            _ => (DOCKER_HUB.to_owned(), name),
        };
        if !is_authority(&registry) {
            return Err(bad("its registry is not host or host:port"));
        }
        let registry = match registry.as_str() {
            "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB.to_owned(),
            _ => registry,
        };
        if repository.chars().any(|char| char.is_ascii_uppercase()) {
            return Err(bad("names of images are lower case"));
        }
        let official = registry == DOCKER_HUB && !repository.contains('/');
        let repository = if official {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(bad(
                "it is not a name such as debian, debian:12 or ghcr.io/owner/name:tag",
            ));
        }
        let tag = match (tag, &digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, Some(_)) => None,
            (None, None) => Some("latest".to_owned()),
        };
        Ok(Self {
            registry,
            repository,
            tag,
            digest,
        })
    }

    /// What to ask the registry for: a digest says more than a tag.
    pub(crate) fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Whether the first part of a name is a registry rather than a user of Docker Hub. Capitals alone do
/// not make one, unlike with Docker: registries are kept in lower case, and so would mean a user of
/// Docker Hub to whoever reads the name again.
fn is_registry(first: &str) -> bool {
    first.eq_ignore_ascii_case("localhost") || first.contains(['.', ':'])
}

/// `host` or `host:port`, the host a name, an IPv4 address or an IPv6 address in brackets.
pub(crate) fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, after)) => {
                let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
                match (is_address, after.strip_prefix(':'), after) {
                    (true, Some(port), _) => (true, Some(port)),
                    (true, None, "") => (true, None),
                    _ => (false, None),
                }
            }
            None => (false, None),
        },
        None => match text.split_once(':') {
            Some((host, port)) => (is_host(host), Some(port)),
            None => (is_host(text), None),
        },
    };
    host && port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    })
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(inside)
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn is_tag(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let later = |byte: u8| first(byte) || matches!(byte, b'.' | b'-');
    text.len() <= MAX_TAG && bytes.next().is_some_and(first) && bytes.all(later)
}

/// Letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().is_some_and(alphanumeric) && bytes.last().is_some_and(alphanumeric);
    let separators = bytes.split(alphanumeric).all(|between| {
        matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|byte| *byte == b'-')
    });
    ends && separators
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        Reference::parse(text).unwrap().to_string()
    }

    #[test]
    fn short_names_are_docker_hubs() {
        assert_eq!(read("debian"), "docker.io/library/debian:latest");
        assert_eq!(read("debian:12"), "docker.io/library/debian:12");
        assert_eq!(read("grafana/grafana"), "docker.io/grafana/grafana:latest");
        assert_eq!(read("docker.io/debian"), "docker.io/library/debian:latest");
        assert_eq!(
            read("index.docker.io/library/debian"),
            "docker.io/library/debian:latest"
        );
    }

    #[test]
    fn registries_are_recognized_by_dot_port_or_localhost() {
        assert_eq!(read("localhost/a"), "localhost/a:latest");
        assert_eq!(read("localhost:5000/a/b:c"), "localhost:5000/a/b:c");
        assert_eq!(read("127.0.0.1:5000/a"), "127.0.0.1:5000/a:latest");
        assert_eq!(read("[::1]:5000/a"), "[::1]:5000/a:latest");
        assert_eq!(read("GHCR.io/owner/name:v1.0"), "ghcr.io/owner/name:v1.0");
        assert_eq!(read("local/a"), "docker.io/local/a:latest");
        assert_eq!(read("LOCALHOST/a"), "localhost/a:latest");
    }

    #[test]
    fn a_digest_is_kept_with_and_without_a_tag() {
        let digest = Digest::of(b"x");
        let text = format!("docker.io/library/debian@{digest}");
        assert_eq!(read(&format!("debian@{digest}")), text);
        let both = Reference::parse(&format!("debian:12@{digest}")).unwrap();
        assert_eq!(both.wanted(), digest.to_string());
        assert_eq!(both.tag.as_deref(), Some("12"));
    }

    #[test]
    fn what_is_not_a_reference_is_refused_with_a_reason() {
        for bad in [
            "",
            "Debian",
            "Owner/name",
            "debian:",
            "debian: 12",
            "debian@12",
            "debian@sha512:00",
            "a//b",
            "a/../b",
            "host.com/../../v2/x",
            "http://host/a",
            "user:pass@host/a",
            "host.com:99999/a",
            "host.com:+1/a",
            "ho st.com/a",
            "host.com/a?b",
            "host.com/a#b",
            "-a.com/b",
            "a.com/b-",
            "a___b",
            "a..b",
            "[::1/a",
            &"a".repeat(300),
            // With library/ before it, it is longer than a name can be.
            &"a".repeat(250),
        ] {
            assert!(Reference::parse(bad).is_err(), "{bad}");
        }
        let error = Reference::parse("Debian").unwrap_err().to_string();
        assert!(error.contains("lower case"), "{error}");
    }
}
