//! Whom the operator trusts to be at a private address, or to speak plain http.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use http::Uri;

use crate::{Error, ImageConfig, Result, reference::is_authority};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    /// Without brackets, lower case.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Target {
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let scheme = match uri.scheme_str()? {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || !is_authority(authority.as_str()) {
            return None;
        }
        Some(Self {
            scheme,
            host: bare(authority.host()),
            port: authority.port_u16().unwrap_or(scheme.port()),
        })
    }

    /// To whoever reads it, without asking anybody.
    pub(crate) fn is_plainly_private(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
            || self.host == "localhost"
            || self.host.ends_with(".localhost")
    }

    /// As the operator would write it.
    pub(crate) fn shown(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match self.port {
            80 | 443 => host,
            port => format!("{host}:{port}"),
        }
    }
}

fn bare(host: &str) -> String {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase()
}

#[derive(Debug, PartialEq, Eq)]
struct Trusted {
    /// `None`: both.
    scheme: Option<Scheme>,
    host: String,
    /// `None`: 443 and 80.
    port: Option<u16>,
}

impl Trusted {
    fn matches(&self, target: &Target) -> bool {
        let port = match self.port {
            Some(port) => port == target.port,
            None => matches!(target.port, 80 | 443),
        };
        port && self.host == target.host
    }
}

#[derive(Debug)]
pub(crate) struct Policy {
    trusted: Vec<Trusted>,
    mirrors: BTreeMap<String, Uri>,
}

impl Policy {
    pub(crate) fn new(config: &ImageConfig) -> Result<Self> {
        let mut trusted = Vec::new();
        for text in &config.allow {
            trusted.push(parse_trusted(text)?);
        }
        let mut mirrors = BTreeMap::new();
        for (registry, base) in &config.mirrors {
            let bad = |reason: &str| Error::Reference {
                reference: base.clone(),
                reason: format!("as a mirror of {registry}: {reason}"),
            };
            let uri: Uri = base
                .trim_end_matches('/')
                .parse()
                .map_err(|_| bad("it is not a URL"))?;
            let target = Target::of(&uri)
                .ok_or_else(|| bad("it must be http://host[:port] or https://host[:port]"))?;
            trusted.push(Trusted {
                scheme: Some(target.scheme),
                host: target.host,
                port: Some(target.port),
            });
            mirrors.insert(registry.to_ascii_lowercase(), uri);
        }
        Ok(Self { trusted, mirrors })
    }

    pub(crate) fn mirror(&self, registry: &str) -> Option<&Uri> {
        self.mirrors.get(registry)
    }

    pub(crate) fn may_be_private(&self, target: &Target) -> bool {
        self.trusted.iter().any(|trusted| trusted.matches(target))
    }

    pub(crate) fn allows_http(&self, target: &Target) -> bool {
        let plain = |trusted: &Trusted| trusted.scheme != Some(Scheme::Https);
        self.trusted
            .iter()
            .any(|trusted| plain(trusted) && trusted.matches(target))
    }

    /// What a registry speaks, if the operator said so.
    pub(crate) fn scheme(&self, target: &Target) -> Option<Scheme> {
        let mut of_it = self
            .trusted
            .iter()
            .filter(|trusted| trusted.matches(target));
        of_it.find_map(|trusted| trusted.scheme)
    }
}

fn parse_trusted(text: &str) -> Result<Trusted> {
    let (scheme, authority) = match text.split_once("://") {
        Some(("http", rest)) => (Some(Scheme::Http), rest),
        Some(("https", rest)) => (Some(Scheme::Https), rest),
        Some(_) => (None, ""),
        None => (None, text),
    };
    let authority = authority.trim_end_matches('/');
    let parsed = Some(authority)
        .filter(|authority| is_authority(authority))
        .and_then(|authority| authority.parse::<http::uri::Authority>().ok());
    let authority = parsed.ok_or_else(|| Error::Reference {
        reference: text.to_owned(),
        reason: "registry-allow takes host or host:port".to_owned(),
    })?;
    Ok(Trusted {
        scheme,
        host: bare(authority.host()),
        port: authority.port_u16(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str]) -> Policy {
        Policy::new(&ImageConfig {
            allow: allow.iter().map(ToString::to_string).collect(),
            mirrors: [("docker.io".to_owned(), "http://10.0.0.9:5000/".to_owned())].into(),
            ..ImageConfig::default()
        })
        .unwrap()
    }

    fn target(uri: &str) -> Target {
        Target::of(&uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn trust_is_for_a_host_and_a_port() {
        let policy = policy(&["localhost:5000", "Registry.lan", "[::1]:7"]);
        assert!(policy.may_be_private(&target("http://localhost:5000/v2/")));
        assert!(!policy.may_be_private(&target("http://localhost:5001/v2/")));
        assert!(!policy.may_be_private(&target("http://localhost/v2/")));
        assert!(policy.may_be_private(&target("https://registry.lan/")));
        assert!(policy.allows_http(&target("http://registry.lan/")));
        assert!(!policy.may_be_private(&target("http://registry.lan:22/")));
        assert!(policy.may_be_private(&target("http://[::1]:7/")));
    }

    #[test]
    fn a_scheme_narrows_it() {
        let policy = policy(&["https://a:1", "http://b:1"]);
        assert!(!policy.allows_http(&target("http://a:1/")));
        assert!(policy.allows_http(&target("http://b:1/")));
        assert_eq!(policy.scheme(&target("https://b:1/")), Some(Scheme::Http));
        assert_eq!(policy.scheme(&target("https://c:1/")), None);
    }

    #[test]
    fn mirrors_are_trusted_where_they_are() {
        let policy = policy(&[]);
        assert!(policy.mirror("docker.io").is_some());
        assert!(policy.allows_http(&target("http://10.0.0.9:5000/")));
        assert!(!policy.may_be_private(&target("http://10.0.0.9:5001/")));
    }

    #[test]
    fn nonsense_is_refused_at_start() {
        for bad in ["", "a b", "ftp://x", "host:port", "x/y", "10.0.0.0/8"] {
            let config = ImageConfig {
                allow: vec![bad.to_owned()],
                ..ImageConfig::default()
            };
            assert!(Policy::new(&config).is_err(), "{bad}");
        }
    }
}
