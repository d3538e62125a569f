//! Whether a certificate is to be had from an ACME server, and whether that can work.

use std::{net::SocketAddr, path::PathBuf};

use clap::ValueEnum;
use serde::Deserialize;

use super::{ConfigError, Endpoint, Settings, bad};

/// How the domain is shown to be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcmeChallenge {
    #[value(name = "http-01")]
    #[serde(rename = "http-01")]
    Http01,
    #[value(name = "dns-01")]
    #[serde(rename = "dns-01")]
    Dns01,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeConfig {
    pub challenge: AcmeChallenge,
    pub email: Option<String>,
    pub directory: String,
    pub extra_roots: Option<PathBuf>,
    /// With dns-01.
    pub hook: Option<PathBuf>,
    /// With http-01.
    pub http: Option<SocketAddr>,
    /// What the certificate will be for.
    pub names: Vec<String>,
}

impl AcmeConfig {
    pub(super) fn of(settings: &Settings, domain: &str) -> Result<Option<Self>, ConfigError> {
        let Some(challenge) = settings.acme_challenge else {
            let given = [
                ("acme-email", settings.acme_email.is_some()),
                ("acme-directory", settings.acme_directory.is_some()),
                ("acme-ca", settings.acme_ca.is_some()),
                ("acme-dns-hook", settings.acme_dns_hook.is_some()),
                ("acme-http", settings.acme_http.is_some()),
            ];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((option, _)) => Err(bad(
                    option,
                    "has no effect without --acme-challenge, which asks for a certificate",
                )),
                None => Ok(None),
            };
        };
        check(settings, challenge, domain)?;
        let names = match challenge {
            AcmeChallenge::Dns01 => vec![domain.to_owned(), format!("*.{domain}")],
            AcmeChallenge::Http01 => ["api", "sandbox"]
                .map(|name| format!("{name}.{domain}"))
                .to_vec(),
        };
        let http = settings
            .acme_http
            .unwrap_or(Endpoint::At(SocketAddr::from(([0, 0, 0, 0], 80))));
        Ok(Some(Self {
            challenge,
            email: settings.acme_email.clone(),
            directory: settings
                .acme_directory
                .clone()
                .unwrap_or_else(|| soulbox_acme::LETS_ENCRYPT.to_owned()),
            extra_roots: settings.acme_ca.clone(),
            hook: settings.acme_dns_hook.clone(),
            http: http
                .address()
                .filter(|_| challenge == AcmeChallenge::Http01),
            names,
        }))
    }
}

fn check(settings: &Settings, challenge: AcmeChallenge, domain: &str) -> Result<(), ConfigError> {
    let challenge_option = "acme-challenge";
    if settings.tls_cert.is_some() {
        let problem = "and --tls-cert are two certificates for one domain: leave one of them out";
        return Err(bad(challenge_option, problem));
    }
    if settings.https == Some(Endpoint::Off) {
        return Err(bad(challenge_option, "needs --https, which is off"));
    }
    let last = domain.rsplit('.').next().unwrap_or_default();
    if !domain.contains('.') || ["localhost", "local", "internal"].contains(&last) {
        let problem = format!(
            "needs a --domain of yours in the public DNS (or in that of a private ACME server); nobody \
             issues certificates for {domain}. The local CA does: leave --acme-challenge out"
        );
        return Err(bad(challenge_option, problem));
    }
    match (challenge, &settings.acme_dns_hook, settings.acme_http) {
        (AcmeChallenge::Dns01, None, _) => Err(bad(
            challenge_option,
            "dns-01 needs --acme-dns-hook, a program that adds and removes TXT records",
        )),
        (AcmeChallenge::Http01, Some(_), _) => Err(bad(
            "acme-dns-hook",
            "is for --acme-challenge dns-01: with http-01 no record is made",
        )),
        (AcmeChallenge::Dns01, _, Some(_)) => Err(bad(
            "acme-http",
            "is for --acme-challenge http-01: with dns-01 nobody asks by HTTP",
        )),
        _ => match settings.acme_directory.as_deref() {
            Some(url) if !url.starts_with("https://") => {
                Err(bad("acme-directory", "must begin with https://"))
            }
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns01() -> Settings {
        Settings {
            acme_challenge: Some(AcmeChallenge::Dns01),
            acme_dns_hook: Some("/etc/soulbox/dns".into()),
            ..Settings::default()
        }
    }

    fn http01() -> Settings {
        Settings {
            acme_challenge: Some(AcmeChallenge::Http01),
            ..Settings::default()
        }
    }

    #[test]
    fn a_wildcard_is_asked_for_where_it_can_be_had() {
        let config = AcmeConfig::of(&dns01(), "sbx.example.com")
            .unwrap()
            .unwrap();
        assert_eq!(config.names, ["sbx.example.com", "*.sbx.example.com"]);
        assert_eq!(
            (config.http, config.directory.as_str()),
            (None, soulbox_acme::LETS_ENCRYPT)
        );
        let config = AcmeConfig::of(&http01(), "sbx.example.com")
            .unwrap()
            .unwrap();
        assert_eq!(
            config.names,
            ["api.sbx.example.com", "sandbox.sbx.example.com"]
        );
        assert_eq!(config.http.unwrap().port(), 80);
        assert_eq!(
            AcmeConfig::of(&Settings::default(), "sbx.localhost").unwrap(),
            None
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_would() {
        let refused = |settings: Settings, domain: &str| {
            AcmeConfig::of(&settings, domain).unwrap_err().to_string()
        };
        for (settings, domain, told) in [
            (dns01(), "sbx.localhost", "local CA"),
            (
                Settings {
                    acme_dns_hook: None,
                    ..dns01()
                },
                "a.example",
                "--acme-dns-hook",
            ),
            (
                Settings {
                    tls_cert: Some("x".into()),
                    ..dns01()
                },
                "a.example",
                "--tls-cert",
            ),
            (
                Settings {
                    https: Some(Endpoint::Off),
                    ..dns01()
                },
                "a.example",
                "--https",
            ),
            (
                Settings {
                    acme_dns_hook: Some("x".into()),
                    ..http01()
                },
                "a.example",
                "dns-01",
            ),
            (
                Settings {
                    acme_directory: Some("http://x".into()),
                    ..http01()
                },
                "a.example",
                "https://",
            ),
            (
                Settings {
                    acme_email: Some("x@y".into()),
                    ..Settings::default()
                },
                "a.example",
                "--acme-challenge",
            ),
        ] {
            let text = refused(settings, domain);
            assert!(text.contains(told), "{text}");
        }
    }
}
