//! What a sandbox may reach and who may reach it: checking the request, and changing it.

use std::time::Duration;

use soulbox_types::{Destination, ENVD_PORT, NetworkPolicy, SandboxId};
use tokio::time::timeout;

use crate::{Control, Error, Result, Tenant, view::Lookup};

/// The node has its own, tighter limits.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// Of `allowOut` and `denyOut` together.
const MAX_ENTRIES: usize = 128;
const MAX_HTTPS_PORTS: usize = 64;
const MAX_HOST_LENGTH: usize = 253;
const PORT_PLACEHOLDER: &str = "${PORT}";
const EVERYTHING: &str = "0.0.0.0/0";
/// In E2B's words: clients know them. `ALL_TRAFFIC` is what its SDKs call 0.0.0.0/0.
const NAMES_NEED_DENY: &str = "When specifying allowed domains in allow out, you must include \
                               'ALL_TRAFFIC' in deny out to block all other traffic.";

impl Control {
    /// Replaces what the sandbox may reach; of `egress` only that part counts. Who may reach the
    /// sandbox stays as it was created.
    pub async fn set_egress(
        &self,
        tenant: &Tenant,
        id: &SandboxId,
        egress: NetworkPolicy,
    ) -> Result<()> {
        let status = match self.look_up(tenant, id) {
            Lookup::Running(status) => status,
            Lookup::Paused(_) => return Err(Error::SandboxNotRunning { id: id.clone() }),
            Lookup::Ending => return Err(Error::SandboxEnding { id: id.clone() }),
            Lookup::Missing => return Err(self.not_found(tenant, id).await),
        };
        let network = NetworkPolicy {
            allow_internet: egress.allow_internet,
            allow_out: egress.allow_out,
            deny_out: egress.deny_out,
            ..status.spec.network.clone()
        };
        check(&network)?;
        let changed = timeout(CHANGE_LIMIT, self.node.set_network(id, network)).await;
        match changed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(soulbox_runtime::Error::SandboxNotFound(_))) => {
                Err(self.not_found(tenant, id).await)
            }
            Ok(Err(soulbox_runtime::Error::WrongState { id, .. })) => {
                Err(Error::SandboxNotRunning { id })
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::Timeout {
                what: "changing the network",
                limit: CHANGE_LIMIT,
            }),
        }
    }
}

pub(crate) fn check(network: &NetworkPolicy) -> Result<()> {
    if network.allow_out.len() + network.deny_out.len() > MAX_ENTRIES {
        return invalid(format!(
            "network: at most {MAX_ENTRIES} entries in allowOut and denyOut together"
        ));
    }
    let mut has_names = false;
    for entry in &network.allow_out {
        has_names |= matches!(read("allowOut", entry)?, Destination::Name(_));
    }
    let denies_everything =
        !network.internet() || network.deny_out.iter().any(|entry| entry == EVERYTHING);
    if has_names && !denies_everything {
        return invalid(NAMES_NEED_DENY.to_owned());
    }
    for entry in &network.deny_out {
        let denied = read("denyOut", entry)?;
        if matches!(denied, Destination::Name(_)) {
            return invalid(format!(
                "network.denyOut: {entry:?} is a name, and only IP addresses and CIDR ranges can be \
                 denied; deny {EVERYTHING} and allow the rest in allowOut"
            ));
        }
        if denied.is_unspecified() && entry != EVERYTHING {
            return invalid(format!(
                "network.denyOut: {entry:?} is unspecified; 0.0.0.0/0 denies everything"
            ));
        }
    }
    if let Some(host) = &network.mask_request_host {
        check_host(host)?;
    }
    check_https_ports(&network.https_ports)
}

fn read(list: &str, entry: &str) -> Result<Destination> {
    entry
        .parse()
        .map_err(|error| Error::Invalid(format!("network.{list}: {error}")))
}

/// It becomes a header in front of servers that may trust it: a host, a port, and nothing else.
fn check_host(mask: &str) -> Result<()> {
    let sample = mask.replace(PORT_PLACEHOLDER, "65535");
    let (host, port) = match sample.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (sample.as_str(), None),
    };
    let label = |label: &str| {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(word)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fits = host.len() <= MAX_HOST_LENGTH
        && host.split('.').all(label)
        && port.is_none_or(|port| digits(port) && port.parse::<u16>().is_ok_and(|port| port > 0));
    if fits {
        Ok(())
    } else {
        invalid(format!(
            "network.maskRequestHost: {mask:?} is not a host name with an optional port \
             (a number or {PORT_PLACEHOLDER})"
        ))
    }
}

fn check_https_ports(ports: &[u16]) -> Result<()> {
    if ports.len() > MAX_HTTPS_PORTS {
        return invalid(format!("network.httpsPorts: at most {MAX_HTTPS_PORTS}"));
    }
    match ports.iter().find(|port| matches!(**port, 0 | ENVD_PORT)) {
        Some(port) => invalid(format!("network.httpsPorts: {port} cannot be one of them")),
        None => Ok(()),
    }
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut NetworkPolicy)) -> bool {
        let mut network = NetworkPolicy::default();
        change(&mut network);
        check(&network).is_err()
    }

    #[test]
    fn what_is_denied_are_addresses_and_not_the_unspecified_one() {
        for entry in ["1.1.1.1", "0.0.0.0/0", "2606:4700::/32", "10.0.0.0/8"] {
            assert!(!refused(|n| n.deny_out = vec![entry.to_owned()]), "{entry}");
        }
        for entry in ["example.com", "*", "0.0.0.0", "0.0.0.0/8", "::/0", ""] {
            assert!(refused(|n| n.deny_out = vec![entry.to_owned()]), "{entry}");
        }
        assert!(refused(|n| n.deny_out = vec!["1.1.1.1".to_owned(); 129]));
    }

    #[test]
    fn names_are_allowed_only_where_everything_else_is_denied() {
        let network = |allow: &[&str], deny: &[&str], internet| NetworkPolicy {
            allow_internet: internet,
            allow_out: allow.iter().map(|entry| (*entry).to_owned()).collect(),
            deny_out: deny.iter().map(|entry| (*entry).to_owned()).collect(),
            ..NetworkPolicy::default()
        };
        let told = |network: &NetworkPolicy| check(network).map_err(|error| error.to_string());
        for name in ["example.com", "*.example.com", "*"] {
            assert!(
                told(&network(&[name], &["0.0.0.0/0"], None)).is_ok(),
                "{name}"
            );
            assert!(told(&network(&[name], &[], Some(false))).is_ok(), "{name}");
            for deny in [&[][..], &["1.1.1.1"], &["0.0.0.0/1", "128.0.0.0/1"]] {
                let refused = told(&network(&[name, "1.1.1.1"], deny, None)).unwrap_err();
                // Word for word.
                let text = "When specifying allowed domains in allow out, you must include \
                            'ALL_TRAFFIC' in deny out to block all other traffic.";
                assert_eq!(refused, text);
            }
        }
        for name in [
            "exa mple.com",
            "*.*.com",
            "example.com:443",
            "1.1.1.1.1",
            "https://a.com",
        ] {
            let refused = told(&network(&[name], &["0.0.0.0/0"], None)).unwrap_err();
            assert!(
                refused.contains("network.allowOut") && refused.contains(name),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_masked_host_is_a_name_with_an_optional_port() {
        for host in [
            "custom-host.example.com:${PORT}",
            "localhost:3000",
            "a",
            "${PORT}-x.example.com",
            "127.0.0.1",
        ] {
            let host = host.to_owned();
            assert!(!refused(|n| n.mask_request_host = Some(host)));
        }
        for host in [
            "",
            "a b",
            "a\r\nX-Evil: 1",
            "höst.example.com",
            "a:0",
            "a:70000",
            "a:${PORT}:1",
            "a/b",
            "user@a",
            ".a",
            "-a",
            "${HOST}",
        ] {
            let mask = host.to_owned();
            assert!(refused(|n| n.mask_request_host = Some(mask)), "{host}");
        }
    }

    #[test]
    fn envd_is_no_https_port() {
        assert!(!refused(|n| n.https_ports = vec![443, 8443]));
        assert!(refused(|n| n.https_ports = vec![ENVD_PORT]));
        assert!(refused(|n| n.https_ports = vec![0]));
    }
}
