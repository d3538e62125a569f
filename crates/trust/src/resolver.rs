//! Who resolves names on this machine, and what that needs to know one wildcard more.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

use fs_err as fs;

use crate::{
    Error, Names, Result, ini,
    plan::{Change, Command, Part},
    store::{program, under},
};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// More are ignored by the C library.
const MOST_SERVERS: usize = 3;
const ANOTHER_WAY: &str = "docs/names.md has the ways that need no resolver of this machine: a record in \
                           your own DNS, or a public name that has its address in it";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolver {
    /// NetworkManager, with a dnsmasq of its own.
    NetworkManager,
    Dnsmasq,
    SystemdResolved,
    /// The C library asks what `resolv.conf` names.
    Plain,
}

/// The change, and what the user should know of it.
pub(crate) fn part(root: &Path, names: &Names) -> Result<(Part, Vec<String>)> {
    let text = fs::read_to_string(under(root, RESOLV_CONF)).unwrap_or_default();
    match detect(root, &text) {
        Resolver::NetworkManager => Ok((network_manager(root, names), Vec::new())),
        Resolver::Dnsmasq => Ok(dnsmasq(root, names)),
        Resolver::SystemdResolved => systemd_resolved(root, names),
        Resolver::Plain => plain(root, &text, names),
    }
}

fn detect(root: &Path, resolv_conf: &str) -> Resolver {
    let first = servers(resolv_conf).into_iter().next();
    let manager = ini::values(
        &under(root, "/etc/NetworkManager/NetworkManager.conf"),
        &[
            &under(root, "/usr/lib/NetworkManager/conf.d"),
            &under(root, "/etc/NetworkManager/conf.d"),
        ],
        "dns",
    );
    let is_loopback = first.is_none_or(|server| server.is_loopback());
    if manager.last().is_some_and(|dns| dns == "dnsmasq") && is_loopback {
        return Resolver::NetworkManager;
    }
    let link = fs::read_link(under(root, RESOLV_CONF)).unwrap_or_default();
    let stub = [[127, 0, 0, 53], [127, 0, 0, 54]].map(IpAddr::from);
    if link.to_string_lossy().contains("systemd/resolve")
        || first.is_some_and(|server| stub.contains(&server))
    {
        return Resolver::SystemdResolved;
    }
    if first.is_some_and(|server| server.is_loopback())
        && under(root, "/etc/dnsmasq.d").is_dir()
        && program(root, "dnsmasq").is_some()
    {
        return Resolver::Dnsmasq;
    }
    Resolver::Plain
}

fn servers(resolv_conf: &str) -> Vec<IpAddr> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
        .collect()
}

/// dnsmasq answers a domain and all below it by itself.
fn wildcard_of_dnsmasq(names: &Names) -> String {
    format!(
        "# Made by `soulbox trust`; `soulbox trust --remove` removes it.\naddress=/{}/{}\n",
        names.domain, names.address
    )
}

fn network_manager(root: &Path, names: &Names) -> Part {
    let nmcli = program(root, "nmcli").unwrap_or_else(|| "nmcli".to_owned());
    let reload = Command::new(nmcli, &["general", "reload", "dns-full"]);
    Part {
        what: format!(
            "*.{} is {}, for NetworkManager's dnsmasq",
            names.domain, names.address
        ),
        changes: vec![Change::Add {
            path: format!(
                "/etc/NetworkManager/dnsmasq.d/soulbox-{}.conf",
                names.domain
            )
            .into(),
            content: wildcard_of_dnsmasq(names),
        }],
        after: vec![reload.clone()],
        after_undo: vec![reload],
        relies_on: None,
    }
}

fn dnsmasq(root: &Path, names: &Names) -> (Part, Vec<String>) {
    let (after, notes) = match restart(root, "dnsmasq") {
        Some(command) => (vec![command], Vec::new()),
        None => (
            Vec::new(),
            vec!["restart dnsmasq yourself: neither systemctl nor service is here".to_owned()],
        ),
    };
    let part = Part {
        what: format!("*.{} is {}, for dnsmasq", names.domain, names.address),
        changes: vec![Change::Add {
            path: format!("/etc/dnsmasq.d/soulbox-{}.conf", names.domain).into(),
            content: wildcard_of_dnsmasq(names),
        }],
        after_undo: after.clone(),
        after,
        relies_on: None,
    };
    (part, notes)
}

fn restart(root: &Path, service: &str) -> Option<Command> {
    if under(root, "/run/systemd/system").is_dir() {
        let systemctl = program(root, "systemctl")?;
        return Some(Command::new(systemctl, &["restart", service]));
    }
    Some(Command::new(
        program(root, "service")?,
        &[service, "restart"],
    ))
}

/// It asks one server of a list, whichever answered last: ours must be the only one of its list.
fn systemd_resolved(root: &Path, names: &Names) -> Result<(Part, Vec<String>)> {
    let dns = name_server(names)?;
    let others = ini::values(
        &under(root, "/etc/systemd/resolved.conf"),
        &[
            &under(root, "/usr/lib/systemd/resolved.conf.d"),
            &under(root, "/etc/systemd/resolved.conf.d"),
        ],
        "DNS",
    );
    if !others.is_empty() {
        let problem = format!(
            "systemd-resolved has name servers of its own configuration ({}): it would ask one of them \
             for *.{} as often as ours",
            others.join(" "),
            names.domain
        );
        return Err(Error::impossible(problem, ANOTHER_WAY));
    }
    let restart: Vec<Command> = restart(root, "systemd-resolved").into_iter().collect();
    let part = Part {
        what: format!("*.{} is asked of {dns}, for systemd-resolved", names.domain),
        changes: vec![Change::Add {
            path: format!("/etc/systemd/resolved.conf.d/soulbox-{}.conf", names.domain).into(),
            content: format!(
                "# Made by `soulbox trust`; `soulbox trust --remove` removes it.\n[Resolve]\nDNS={dns}\n\
                 Domains=~{}\n",
                names.domain
            ),
        }],
        after: restart.clone(),
        after_undo: restart,
        relies_on: Some(dns),
    };
    Ok((part, Vec::new()))
}

/// Ours comes first and refuses other names, for which the C library then asks the next; when it does not
/// run, the next is asked as well.
fn plain(root: &Path, text: &str, names: &Names) -> Result<(Part, Vec<String>)> {
    let dns = name_server(names)?;
    if dns.port() != 53 {
        let problem = format!(
            "/etc/resolv.conf can only name servers on port 53, and this one answers names on {dns}"
        );
        let hint = format!(
            "start it with --dns {}:53, or none at all: that is its default",
            dns.ip()
        );
        return Err(Error::impossible(problem, hint));
    }
    let words = |line: &str| {
        line.trim().starts_with("options") && line.split_whitespace().any(|w| w == "rotate")
    };
    if text.lines().any(words) {
        let problem =
            "/etc/resolv.conf has `options rotate`: every name would be asked of another server";
        let hint = format!("remove that option, or: {ANOTHER_WAY}");
        return Err(Error::impossible(problem, hint));
    }
    let mut notes = Vec::new();
    let count = servers(text).len();
    if count >= MOST_SERVERS {
        notes.push(format!(
            "/etc/resolv.conf has {count} name servers, and only the first {MOST_SERVERS} are asked: the last \
             is not any more"
        ));
    }
    if count == 0 {
        notes.push(
            "/etc/resolv.conf names no server: other names are not found, as before".to_owned(),
        );
    }
    if let Some(writer) = writer(root, text) {
        notes.push(format!(
            "{writer} writes /etc/resolv.conf and may overwrite this: then run `soulbox trust` again"
        ));
    }
    let part = Part {
        what: format!(
            "*.{} is asked of {}, for the C library",
            names.domain,
            dns.ip()
        ),
        changes: vec![Change::Prepend {
            path: RESOLV_CONF.into(),
            lines: format!(
                "# soulbox trust: *.{} (`soulbox trust --remove` removes these two lines)\nnameserver {}\n",
                names.domain,
                dns.ip()
            ),
        }],
        after: Vec::new(),
        after_undo: Vec::new(),
        relies_on: Some(dns),
    };
    Ok((part, notes))
}

fn name_server(names: &Names) -> Result<SocketAddr> {
    names.dns.ok_or_else(|| {
        let problem = format!(
            "this machine's resolver must be given a name server for *.{}, and the server answers no names",
            names.domain
        );
        let hint = if names.is_here() {
            "its log says why (`--dns`): another program may have the address; choose one with `serve --dns \
             127.0.0.2:53`"
        } else {
            "let the server answer names (`serve --dns ADDRESS:53`) and give that address with --dns; or use a \
             name that needs no resolver (docs/names.md)"
        };
        Error::impossible(problem, hint)
    })
}

/// Who says, in its first lines or by a link, that the file is generated.
fn writer(root: &Path, text: &str) -> Option<&'static str> {
    let link = fs::read_link(under(root, RESOLV_CONF)).unwrap_or_default();
    let link = link.to_string_lossy();
    let comments: String = text
        .lines()
        .filter(|line| line.starts_with(['#', ';']))
        .collect();
    [
        ("NetworkManager", "NetworkManager"),
        ("resolvconf", "resolvconf"),
        ("dhcpcd", "dhcpcd"),
        ("dhclient", "dhclient"),
        ("connman", "connman"),
        ("WSL", "WSL"),
    ]
    .into_iter()
    .find(|(mark, _)| link.contains(mark) || comments.contains(mark))
    .map(|(_, writer)| writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is nothing but a few files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = under(root.path(), path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn names(domain: &str, dns: &str) -> Names {
        let here = [127, 0, 0, 1].into();
        Names::of(domain, 3443, here, dns.parse().ok(), true).unwrap()
    }

    fn only_change(root: &Path, names: &Names) -> (String, String) {
        let (part, _) = part(root, names).unwrap();
        match &part.changes[..] {
            [Change::Add { path, content }] => (path.display().to_string(), content.clone()),
            [Change::Prepend { path, lines }] => (path.display().to_string(), lines.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_resolver_is_known_by_its_files() {
        for (files, expected) in [
            (
                vec![("/etc/resolv.conf", "nameserver 10.0.0.1\n")],
                Resolver::Plain,
            ),
            (vec![], Resolver::Plain),
            (
                vec![("/etc/resolv.conf", "nameserver 127.0.0.53\n")],
                Resolver::SystemdResolved,
            ),
            (
                vec![
                    ("/etc/resolv.conf", "nameserver 127.0.0.1\n"),
                    ("/etc/dnsmasq.d/README", ""),
                    ("/usr/sbin/dnsmasq", ""),
                ],
                Resolver::Dnsmasq,
            ),
            (
                vec![
                    ("/etc/resolv.conf", "nameserver 127.0.1.1\n"),
                    (
                        "/etc/NetworkManager/conf.d/x.conf",
                        "[main]\ndns = dnsmasq\n",
                    ),
                ],
                Resolver::NetworkManager,
            ),
            (
                vec![
                    ("/etc/resolv.conf", "nameserver 10.0.0.1\n"),
                    (
                        "/etc/NetworkManager/conf.d/x.conf",
                        "[main]\n#dns=dnsmasq\ndns=default\n",
                    ),
                ],
                Resolver::Plain,
            ),
        ] {
            let root = machine(&files);
            let text = fs::read_to_string(under(root.path(), RESOLV_CONF)).unwrap_or_default();
            assert_eq!(detect(root.path(), &text), expected, "{files:?}");
        }
        let linked = machine(&[("/etc/hosts", "")]);
        let target = "../run/systemd/resolve/stub-resolv.conf";
        std::os::unix::fs::symlink(target, under(linked.path(), RESOLV_CONF)).unwrap();
        assert_eq!(detect(linked.path(), ""), Resolver::SystemdResolved);
    }

    #[test]
    fn dnsmasq_gets_the_wildcard_itself() {
        let root = machine(&[(
            "/etc/NetworkManager/NetworkManager.conf",
            "[main]\ndns=dnsmasq\n",
        )]);
        let (path, content) = only_change(root.path(), &names("sbx.test", "off"));
        assert_eq!(path, "/etc/NetworkManager/dnsmasq.d/soulbox-sbx.test.conf");
        assert!(
            content.ends_with("\naddress=/sbx.test/127.0.0.1\n"),
            "{content}"
        );
    }

    #[test]
    fn systemd_resolved_routes_the_domain_and_is_left_alone_where_it_would_ask_others() {
        let root = machine(&[("/etc/resolv.conf", "nameserver 127.0.0.53\n")]);
        let names = names("sbx.test", "127.0.83.66:53");
        let (path, content) = only_change(root.path(), &names);
        assert_eq!(path, "/etc/systemd/resolved.conf.d/soulbox-sbx.test.conf");
        assert!(
            content.ends_with("[Resolve]\nDNS=127.0.83.66:53\nDomains=~sbx.test\n"),
            "{content}"
        );
        fs::create_dir_all(under(root.path(), "/etc/systemd")).unwrap();
        fs::write(
            under(root.path(), "/etc/systemd/resolved.conf"),
            "[Resolve]\nDNS=9.9.9.9\n",
        )
        .unwrap();
        let refused = part(root.path(), &names).unwrap_err();
        assert!(refused.to_string().contains("9.9.9.9"), "{refused}");
    }

    #[test]
    fn resolv_conf_gets_one_server_first_where_that_can_work() {
        let root = machine(&[(
            "/etc/resolv.conf",
            "# Generated by NetworkManager\nnameserver 10.0.0.1\n",
        )]);
        let ours = names("sbx.localhost", "127.0.83.66:53");
        let (path, lines) = only_change(root.path(), &ours);
        assert_eq!(
            (path.as_str(), lines.lines().count()),
            ("/etc/resolv.conf", 2)
        );
        assert!(lines.ends_with("\nnameserver 127.0.83.66\n"), "{lines}");
        let (_, notes) = part(root.path(), &ours).unwrap();
        assert!(notes[0].starts_with("NetworkManager writes"), "{notes:?}");

        for (text, dns) in [
            (
                "nameserver 10.0.0.1\noptions ndots:1 rotate\n",
                "127.0.83.66:53",
            ),
            ("nameserver 10.0.0.1\n", "127.0.0.1:5300"),
            ("nameserver 10.0.0.1\n", "none"),
        ] {
            let root = machine(&[("/etc/resolv.conf", text)]);
            let refused = part(root.path(), &names("sbx.localhost", dns)).unwrap_err();
            assert!(refused.hint().is_some(), "{refused}");
        }
    }
}
