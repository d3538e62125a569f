//! `passwd`, `group` and their shadows: the host's system accounts, and `user`.
//!
//! Files of the host's `/usr` belong to system accounts, so these keep their numbers. People of
//! the host, and who is in which group, are nobody's business inside.

use std::{collections::BTreeSet, path::Path};

use crate::{
    Result,
    layer::{Layer, Owner, ROOT},
};

const FIRST_PERSON: u32 = 1000;
const NOBODY: u32 = 65534;
/// For a host whose files cannot be read: what `apt`, `ssh` and friends expect at least.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
    daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
    bin:x:2:2:bin:/bin:/usr/sbin/nologin\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str =
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsudo:x:27:\nshadow:x:42:\nnogroup:x:65534:\n";

#[derive(Debug, Default)]
pub(crate) struct Accounts {
    passwd: String,
    shadow: String,
    group: String,
    gshadow: String,
    shadow_group: u32,
}

impl Accounts {
    pub(crate) fn of(host: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(host.join("etc").join(name));
        Self::from_text(
            &read("passwd").unwrap_or_default(),
            &read("group").unwrap_or_default(),
        )
    }

    fn from_text(passwd: &str, group: &str) -> Self {
        let (passwd, shadow) = users(passwd);
        let (group, gshadow, shadow_group) = groups(group);
        Self {
            passwd: passwd.concat(),
            shadow: shadow.concat(),
            group: group.concat(),
            gshadow: gshadow.concat(),
            shadow_group,
        }
    }

    pub(crate) fn write(&self, layer: &mut Layer) -> Result<()> {
        let shadow = Owner {
            uid: 0,
            gid: self.shadow_group,
        };
        layer.file("etc/passwd", &self.passwd, 0o644, ROOT)?;
        layer.file("etc/group", &self.group, 0o644, ROOT)?;
        layer.file("etc/shadow", &self.shadow, 0o640, shadow)?;
        layer.file("etc/gshadow", &self.gshadow, 0o640, shadow)?;
        layer.file("etc/subuid", "", 0o644, ROOT)?;
        layer.file("etc/subgid", "", 0o644, ROOT)
    }
}

/// Lines of `passwd` and `shadow`.
fn users(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut passwd, mut shadow) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::from(["user"]);
    for line in text.lines().chain(PASSWD.lines()) {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else {
            continue;
        };
        let (Some(uid), Some(gid)) = (system_id(uid), system_id(gid)) else {
            continue;
        };
        if !names.insert(name) {
            continue;
        }
        let (home, shell) = if uid == 0 {
            ("/root", "/bin/bash")
        } else {
            (home, shell)
        };
        // The comment field may name people.
        passwd.push(format!("{name}:x:{uid}:{gid}:{name}:{home}:{shell}\n"));
        shadow.push(format!("{name}:*:19000:0:99999:7:::\n"));
    }
    passwd.push("user:x:1000:1000:user:/home/user:/bin/bash\n".into());
    shadow.push("user::19000:0:99999:7:::\n".into());
    (passwd, shadow)
}

/// Lines of `group` and `gshadow`, and the number of the group `shadow`.
fn groups(text: &str) -> (Vec<String>, Vec<String>, u32) {
    let (mut group, mut gshadow, mut shadow_group) = (Vec::new(), Vec::new(), 0);
    let mut names = BTreeSet::from(["user"]);
    let mut numbers = BTreeSet::new();
    for line in text.lines().chain(GROUP.lines()) {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, gid, _] = fields[..] else {
            continue;
        };
        let Some(gid) = system_id(gid) else { continue };
        if names.contains(name) || !numbers.insert(gid) {
            continue;
        }
        names.insert(name);
        let members = if matches!(name, "sudo" | "wheel") {
            "user"
        } else {
            ""
        };
        if name == "shadow" {
            shadow_group = gid;
        }
        group.push(format!("{name}:x:{gid}:{members}\n"));
        gshadow.push(format!("{name}:*::{members}\n"));
    }
    group.push("user:x:1000:\n".into());
    gshadow.push("user:!::\n".into());
    (group, gshadow, shadow_group)
}

fn system_id(text: &str) -> Option<u32> {
    text.parse()
        .ok()
        .filter(|id| *id < FIRST_PERSON || *id == NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_PASSWD: &str = "root:x:0:0:Ada Admin:/root:/usr/bin/zsh\n\
        _apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n\
        user:x:999:999:an unlucky name:/srv:/bin/sh\n\
        ada:x:1000:1000:Ada,,,:/home/ada:/bin/bash\n\
        nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
    const HOST_GROUP: &str =
        "root:x:0:\nadm:x:4:ada\nshadow:x:42:\nsudo:x:27:ada\nada:x:1000:\nnogroup:x:65534:\n";

    #[test]
    fn system_accounts_keep_their_numbers_and_people_are_gone() {
        let accounts = Accounts::from_text(HOST_PASSWD, HOST_GROUP);
        assert!(accounts.passwd.contains("_apt:x:100:65534:"));
        assert!(
            accounts
                .passwd
                .starts_with("root:x:0:0:root:/root:/bin/bash\n")
        );
        assert!(
            accounts
                .passwd
                .contains("\nuser:x:1000:1000:user:/home/user:/bin/bash\n")
        );
        for text in [
            &accounts.passwd,
            &accounts.shadow,
            &accounts.group,
            &accounts.gshadow,
        ] {
            assert!(!text.to_lowercase().contains("ada"), "{text}");
            assert_eq!(text.lines().filter(|l| l.starts_with("user:")).count(), 1);
            assert_eq!(text.lines().filter(|l| l.starts_with("root:")).count(), 1);
        }
        assert!(accounts.group.contains("sudo:x:27:user\n"));
        assert_eq!(accounts.shadow_group, 42);
    }

    #[test]
    fn only_user_has_no_password_to_give() {
        let accounts = Accounts::from_text(HOST_PASSWD, HOST_GROUP);
        for line in accounts.shadow.lines() {
            assert_eq!(
                line.split(':').nth(1) == Some(""),
                line.starts_with("user:"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_host_without_readable_accounts_still_gets_the_usual_ones() {
        let accounts = Accounts::from_text("", "");
        assert!(accounts.passwd.contains("nobody:x:65534"));
        assert!(accounts.group.contains("sudo:x:27:user"));
    }
}
