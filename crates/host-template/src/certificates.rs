//! Which certificate authorities sandboxes trust: the host's, and what the operator adds.

use std::path::{Path, PathBuf};

use crate::{
    Error, Result,
    error::At,
    layer::{Layer, ROOT, sorted_names},
};

/// Where every program inside finds them, whatever the host's distribution calls the place.
pub(crate) const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What programs read that bring their own list of authorities or look elsewhere. Set only where
/// the host has more than its distribution ships: then the own lists are not enough.
pub(crate) const VARIABLES: [&str; 6] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// Bundles of Debian, Fedora, openSUSE and Alpine, in this order.
const HOST_BUNDLES: [&str; 4] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];
/// Where administrators put authorities of their own.
const HOST_EXTRA: [&str; 4] = [
    "usr/local/share/ca-certificates",
    "etc/pki/ca-trust/source/anchors",
    "etc/pki/trust/anchors",
    "etc/ca-certificates/trust-source/anchors",
];
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

#[derive(Debug, Default)]
pub(crate) struct Certificates {
    host: String,
    host_has_extra: bool,
    extra: Vec<String>,
}

impl Certificates {
    pub(crate) fn gather(host: &Path, extra: &[PathBuf]) -> Result<Self> {
        let mut certificates = Self::default();
        for path in HOST_BUNDLES.map(|name| host.join(name)) {
            if let Ok(bytes) = std::fs::read(&path) {
                certificates.host = blocks(&String::from_utf8_lossy(&bytes)).concat();
                break;
            }
        }
        certificates.host_has_extra = HOST_EXTRA
            .iter()
            .any(|name| sorted_names(&host.join(name)).is_ok_and(|names| !names.is_empty()));
        for path in extra {
            let text = std::fs::read(path).at("read", path)?;
            let found = blocks(&String::from_utf8_lossy(&text));
            if found.is_empty() {
                return Err(Error::NoCertificate { path: path.clone() });
            }
            certificates.extra.extend(found);
        }
        Ok(certificates)
    }

    /// Whether there are authorities that programs with a list of their own would not know.
    pub(crate) fn has_extra(&self) -> bool {
        self.host_has_extra || !self.extra.is_empty()
    }

    pub(crate) fn bundle(&self) -> String {
        let mut bundle = self.host.clone();
        for certificate in self
            .extra
            .iter()
            .filter(|c| !self.host.contains(c.as_str()))
        {
            bundle.push_str(certificate);
        }
        bundle
    }

    /// Puts the operator's where `update-ca-certificates` looks, so that a sandbox that runs it
    /// (installing a package may) keeps them.
    pub(crate) fn add_sources(&self, usr: &mut Layer, original: &Path) -> Result<()> {
        let dir = Path::new("local/share/ca-certificates");
        if !self.extra.is_empty() {
            usr.mirror_directories(dir, original)?;
        }
        for (number, certificate) in self.extra.iter().enumerate() {
            let path = format!("{}/soulbox-{number}.crt", dir.display());
            usr.file(&path, certificate, 0o644, ROOT)?;
        }
        Ok(())
    }
}

/// The certificates of a PEM file, without comments and, above all, without keys.
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN) {
        let Some(length) = rest[begin..].find(END) else {
            break;
        };
        let end = begin + length + END.len();
        found.push(format!("{}\n", &rest[begin..end]));
        rest = &rest[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_next_to_a_certificate_are_left_out() {
        let key = "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n";
        let text = format!("# mine\n{BEGIN}\nAA\n{END}\n{key}{BEGIN}\nBB\n{END}");
        let found = blocks(&text);
        assert_eq!(
            found,
            [
                format!("{BEGIN}\nAA\n{END}\n"),
                format!("{BEGIN}\nBB\n{END}\n")
            ]
        );
    }

    #[test]
    fn a_file_without_a_certificate_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proxy.pem");
        fs_err::write(&path, "nothing").unwrap();
        let error = Certificates::gather(dir.path(), &[path]).unwrap_err();
        assert!(error.to_string().contains("proxy.pem"), "{error}");
    }
}
