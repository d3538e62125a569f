//! Accounts of the sandbox, read from its `/etc/passwd` and `/etc/group`.
//!
//! Never through the C library: a static program must not load the sandbox's NSS modules.

use std::{collections::HashMap, fs, path::PathBuf};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// A sandbox may write anything into these files; reading them must stay cheap.
const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    /// The primary group and every group that lists the user.
    pub(crate) groups: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("invalid username: '{0}'")]
    Unknown(String),
}

pub(crate) fn lookup(name: &str) -> Result<User, Error> {
    find(name, &read(PASSWD), &read(GROUP)).ok_or_else(|| Error::Unknown(name.to_owned()))
}

fn find(name: &str, passwd: &str, group: &str) -> Option<User> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| {
            (fields.next() == Some(name) && !name.is_empty()).then_some(fields)
        })?;
    let _password = fields.next()?;
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let _comment = fields.next()?;
    let home = fields
        .next()
        .filter(|home| home.starts_with('/'))
        .unwrap_or("/");

    let mut groups = vec![gid];
    for line in group.lines() {
        let mut fields = line.split(':').skip(2);
        let (Some(id), Some(members)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Ok(id) = id.parse() else { continue };
        if members.split(',').any(|member| member == name) && !groups.contains(&id) {
            groups.push(id);
        }
    }
    Some(User {
        name: name.to_owned(),
        uid,
        gid,
        home: home.into(),
        groups,
    })
}

/// The id of a group, if there is one of this name.
pub(crate) fn group(name: &str) -> Option<u32> {
    id_of(name, &read(GROUP))
}

fn id_of(name: &str, text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name) && !name.is_empty();
        found.then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Names of ids, for listings: read once, asked often.
pub(crate) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    pub(crate) fn load() -> Self {
        Self {
            users: by_id(&read(PASSWD)),
            groups: by_id(&read(GROUP)),
        }
    }

    pub(crate) fn user(&self, id: u32) -> String {
        self.users
            .get(&id)
            .cloned()
            .unwrap_or_else(|| id.to_string())
    }

    pub(crate) fn group(&self, id: u32) -> String {
        self.groups
            .get(&id)
            .cloned()
            .unwrap_or_else(|| id.to_string())
    }
}

/// Both files have the name in the first column and the id in the third. The first line wins.
fn by_id(text: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(id))) = (fields.next(), fields.nth(1).map(str::parse)) {
            names.entry(id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

fn read(path: &str) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    if let Ok(file) = crate::paths::open_regular(path.as_ref()) {
        let _partial = fs::File::from(file).take(MAX_FILE).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        user:x:1000:1001:,,,:/home/user:/bin/bash\nbroken:x\nodd:x:7:7::relative:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nuser:x:1001:\nsudo:x:27:other,user\ndocker:x:99:users\n";

    #[test]
    fn a_user_has_its_primary_and_supplementary_groups() {
        let user = find("user", PASSWD, GROUP).unwrap();
        assert_eq!(
            (user.uid, user.gid, user.groups),
            (1000, 1001, vec![1001, 27])
        );
        assert_eq!(user.home, PathBuf::from("/home/user"));
    }

    #[test]
    fn broken_lines_and_unknown_names_are_nobody() {
        for name in ["broken", "nobody", "", "user:x"] {
            assert_eq!(find(name, PASSWD, GROUP), None, "{name:?}");
        }
        assert_eq!(find("odd", PASSWD, GROUP).unwrap().home, PathBuf::from("/"));
    }

    #[test]
    fn groups_are_found_by_name() {
        assert_eq!(id_of("sudo", GROUP), Some(27));
        assert_eq!(id_of("", GROUP), None);
        assert_eq!(id_of("nobody", GROUP), None);
    }

    #[test]
    fn ids_without_a_name_are_shown_as_numbers() {
        let names = Names {
            users: by_id(PASSWD),
            groups: by_id(GROUP),
        };
        assert_eq!(
            (names.user(1000), names.user(5)),
            ("user".into(), "5".into())
        );
        assert_eq!(
            (names.group(27), names.group(6)),
            ("sudo".into(), "6".into())
        );
    }
}
