//! `DIR/env` and `DIR/env.tls`: what a shell needs so that E2B's SDKs talk to this server.

use std::{
    fmt::Write,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use soulbox_types::Secret;

use crate::private_file::{self, SECRET};

/// Volume content does not follow the first.
const URLS: [&str; 3] = ["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"];
const KEY_LINE: &str = "export E2B_API_KEY=";

/// Where clients find the server.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    pub(crate) http: SocketAddr,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) domain: String,
    /// The CA for Node, and the bundle for clients whose roots it replaces.
    pub(crate) trust: Option<(PathBuf, PathBuf)>,
    /// Whether names of sandboxes are certified by the local CA.
    pub(crate) needs_local_ca: bool,
    /// A certificate without the wildcard is for these two names alone.
    pub(crate) only_two_names: bool,
}

impl Endpoints {
    pub(crate) fn http_url(&self) -> String {
        format!("http://{}", reachable(self.http))
    }

    /// Where clients on this machine find it without asking for a name, if its certificate is for
    /// that too. Node knows `*.localhost` only where the system's resolver does.
    fn local_https_url(&self) -> Option<String> {
        let address = reachable(self.https?);
        let is_local = self.domain == "localhost" || self.domain.ends_with(".localhost");
        // Somebody else's certificate is for names only.
        let usable = is_local && self.trust.is_some() && address.ip().is_loopback();
        usable.then(|| format!("https://{address}"))
    }

    /// `api` or `sandbox`.
    fn url_of(&self, name: &str) -> Option<String> {
        Some(format!("https://{name}.{}", self.tls_domain()?))
    }

    /// What the SDKs are given beside the domain. Volumes follow the API.
    fn urls(&self) -> Option<[String; 3]> {
        if let Some(url) = self.local_https_url() {
            return Some([url.clone(), url.clone(), url]);
        }
        let (api, sandbox) = (self.url_of("api")?, self.url_of("sandbox")?);
        self.only_two_names.then(|| [api.clone(), sandbox, api])
    }

    /// `E2B_DOMAIN`: with the port, unless it is the one that https implies.
    pub(crate) fn tls_domain(&self) -> Option<String> {
        let port = self.https?.port();
        Some(if port == 443 {
            self.domain.clone()
        } else {
            format!("{}:{port}", self.domain)
        })
    }
}

/// An address that means "all of them" is no address to connect to.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("env")
}

pub(crate) fn tls_path(dir: &Path) -> PathBuf {
    dir.join("env.tls")
}

/// The key of an earlier start. Only these files have it: the store keeps a digest.
pub(crate) fn known_key(dir: &Path) -> io::Result<Option<Secret>> {
    for path in [path(dir), tls_path(dir)] {
        let text = private_file::read(&path)?.unwrap_or_default();
        let key = text.lines().find_map(|line| line.strip_prefix(KEY_LINE));
        if let Some(key) = key
            .map(|key| key.trim_matches(['\'', '"']))
            .filter(|key| !key.is_empty())
        {
            return Ok(Some(Secret::new(key)));
        }
    }
    Ok(None)
}

/// The first of them with the key alone, for a copy of the folder: whoever names a copy whose server
/// does not run yet must not reach the server that it was copied from.
pub(crate) fn without_address(dir: &Path) -> io::Result<String> {
    Ok(header(known_key(dir)?.as_ref()))
}

/// Writes both. Without a key they say how to make one.
pub(crate) fn write(dir: &Path, key: Option<&Secret>, endpoints: &Endpoints) -> io::Result<()> {
    let mut plain = header(key);
    let url = endpoints.http_url();
    for name in URLS {
        line(&mut plain, name, &url);
    }
    plain.push_str("unset E2B_DOMAIN\n"); // left by env.tls in the same shell
    private_file::write_if_other(&path(dir), SECRET, plain.as_bytes())?;

    let Some(domain) = endpoints.tls_domain() else {
        return remove(&tls_path(dir));
    };
    let mut tls = header(key);
    line(&mut tls, "E2B_DOMAIN", &domain);
    if let Some((ca, bundle)) = &endpoints.trust {
        line(&mut tls, "NODE_EXTRA_CA_CERTS", &ca.to_string_lossy());
        // The last two are what `requests` and curl look at.
        for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"] {
            line(&mut tls, name, &bundle.to_string_lossy());
        }
    }
    match endpoints.urls() {
        // The domain is then for what `get_host` returns.
        Some(urls) => {
            for (name, url) in URLS.into_iter().zip(urls) {
                line(&mut tls, name, &url);
            }
        }
        // They would win over the domain.
        None => writeln!(tls, "unset {}", URLS.join(" ")).unwrap_or_default(),
    }
    private_file::write_if_other(&tls_path(dir), SECRET, tls.as_bytes())
}

fn header(key: Option<&Secret>) -> String {
    match key {
        Some(key) => format!("{KEY_LINE}{}\n", quoted(key.expose())),
        None => {
            "# No valid key is known here any more. Make a new one: soulbox key create\n".to_owned()
        }
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing into a String cannot fail.
    writeln!(text, "export {name}={}", quoted(value)).unwrap_or_default();
}

/// As a shell reads it back; plain where nothing needs quotes.
fn quoted(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:[]".contains(&b);
    if value.bytes().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn endpoints(dir: &Path) -> Endpoints {
        Endpoints {
            http: "0.0.0.0:3000".parse().unwrap(),
            https: Some("127.0.0.1:3443".parse().unwrap()),
            domain: "sbx.localhost".to_owned(),
            trust: Some((dir.join("tls/ca.pem"), dir.join("tls/bundle.pem"))),
            needs_local_ca: true,
            only_two_names: false,
        }
    }

    /// What a shell makes of a file.
    fn sourced(path: &Path, variable: &str) -> String {
        let output = std::process::Command::new("bash")
            .args(["-c", ". \"$1\" && printf %s \"${!2}\"", "-"])
            .arg(path)
            .arg(variable)
            .env("E2B_SANDBOX_URL", "left over")
            .env("E2B_DOMAIN", "left over")
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_shell_reads_both_files() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let dir = &dir.path().join("it's here");
        fs_err::create_dir(dir).unwrap();
        let key = Secret::new("e2b_0123");
        write(dir, Some(&key), &endpoints(dir)).unwrap();
        let (env, tls) = (path(dir), tls_path(dir));
        assert_eq!(sourced(&env, "E2B_API_KEY"), "e2b_0123");
        assert_eq!(sourced(&env, "E2B_API_URL"), "http://127.0.0.1:3000");
        assert_eq!(sourced(&env, "E2B_SANDBOX_URL"), "http://127.0.0.1:3000");
        assert_eq!(sourced(&env, "E2B_DOMAIN"), "");
        assert_eq!(sourced(&tls, "E2B_API_KEY"), "e2b_0123");
        assert_eq!(sourced(&tls, "E2B_DOMAIN"), "sbx.localhost:3443");
        for name in URLS {
            assert_eq!(sourced(&tls, name), "https://127.0.0.1:3443");
        }
        for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"] {
            assert_eq!(
                sourced(&tls, name),
                dir.join("tls/bundle.pem").to_str().unwrap()
            );
        }
        assert_eq!(
            sourced(&tls, "NODE_EXTRA_CA_CERTS"),
            dir.join("tls/ca.pem").to_str().unwrap()
        );
        for file in [env, tls] {
            assert_eq!(
                fs_err::metadata(file).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }

    #[test]
    fn where_only_the_name_is_certified_nothing_wins_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let usual = endpoints(dir.path());
        let own_domain = Endpoints {
            domain: "sbx.example.com".to_owned(),
            ..usual.clone()
        };
        let own_certificate = Endpoints {
            trust: None,
            ..usual.clone()
        };
        let elsewhere = Endpoints {
            https: Some("192.0.2.1:443".parse().unwrap()),
            ..usual
        };
        for endpoints in [own_domain, own_certificate, elsewhere] {
            write(dir.path(), None, &endpoints).unwrap();
            for name in URLS {
                assert_eq!(sourced(&tls_path(dir.path()), name), "", "{endpoints:?}");
            }
        }
    }

    #[test]
    fn where_the_wildcard_is_not_certified_the_two_names_that_are_win_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let endpoints = Endpoints {
            domain: "sbx.example.com".to_owned(),
            https: Some("0.0.0.0:443".parse().unwrap()),
            only_two_names: true,
            ..endpoints(dir.path())
        };
        write(dir.path(), None, &endpoints).unwrap();
        let tls = tls_path(dir.path());
        assert_eq!(sourced(&tls, "E2B_API_URL"), "https://api.sbx.example.com");
        assert_eq!(
            sourced(&tls, "E2B_SANDBOX_URL"),
            "https://sandbox.sbx.example.com"
        );
        assert_eq!(sourced(&tls, "E2B_DOMAIN"), "sbx.example.com");
    }

    #[test]
    fn the_key_is_found_again_in_either_file() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(known_key(dir).unwrap().is_none());
        write(dir, Some(&Secret::new("e2b_0123")), &endpoints(dir)).unwrap();
        assert!(known_key(dir).unwrap().unwrap().matches("e2b_0123"));
        fs_err::remove_file(path(dir)).unwrap();
        assert!(known_key(dir).unwrap().unwrap().matches("e2b_0123"));
    }

    #[test]
    fn without_a_key_the_file_says_how_to_make_one() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), None, &endpoints(dir.path())).unwrap();
        let text = fs_err::read_to_string(path(dir.path())).unwrap();
        assert!(
            text.contains("soulbox key create") && !text.contains("E2B_API_KEY="),
            "{text}"
        );
    }

    #[test]
    fn without_https_there_is_no_file_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut endpoints = endpoints(dir.path());
        write(dir.path(), None, &endpoints).unwrap();
        endpoints.https = None;
        write(dir.path(), None, &endpoints).unwrap();
        assert!(!tls_path(dir.path()).exists());
    }
}
