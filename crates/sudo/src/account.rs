//! Users and groups of this root file system.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: OsString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: OsString,
    pub(crate) shell: OsString,
}

pub(crate) struct Accounts {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Accounts {
    pub(crate) fn load() -> Self {
        Self {
            passwd: fs::read("/etc/passwd").unwrap_or_default(),
            group: fs::read("/etc/group").unwrap_or_default(),
        }
    }

    /// A name, or `#` and a number, which need not have a name.
    pub(crate) fn user(&self, name: &OsStr) -> Option<Account> {
        match id(name) {
            Some(uid) => Some(self.user_by_id(uid).unwrap_or_else(|| nameless(uid))),
            None => self.users().find(|account| account.name == name),
        }
    }

    pub(crate) fn user_by_id(&self, uid: u32) -> Option<Account> {
        self.users().find(|account| account.uid == uid)
    }

    pub(crate) fn group(&self, name: &OsStr) -> Option<u32> {
        id(name).or_else(|| {
            lines(&self.group)
                .find(|fields| fields[0] == name.as_bytes())
                .and_then(|f| number(f[2]))
        })
    }

    /// Every group that lists the user, and the primary one.
    pub(crate) fn groups_of(&self, account: &Account) -> Vec<u32> {
        let mut groups = vec![account.gid];
        for fields in lines(&self.group) {
            let mut members = fields[3].split(|byte| *byte == b',');
            if let Some(gid) = number(fields[2])
                && members.any(|member| member == account.name.as_bytes())
                && !groups.contains(&gid)
            {
                groups.push(gid);
            }
        }
        groups
    }

    fn users(&self) -> impl Iterator<Item = Account> {
        lines(&self.passwd).filter_map(|fields| {
            let text = |i: usize| {
                fields
                    .get(i)
                    .map(|field| OsStr::from_bytes(field).to_owned())
            };
            Some(Account {
                name: text(0).filter(|name| !name.is_empty())?,
                uid: number(fields[2])?,
                gid: number(fields[3])?,
                home: text(5)?,
                shell: text(6)
                    .filter(|shell| !shell.is_empty())
                    .unwrap_or_else(|| "/bin/sh".into()),
            })
        })
    }
}

/// Lines with at least four fields.
fn lines(file: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    file.split(|byte| *byte == b'\n')
        .map(|line| line.split(|byte| *byte == b':').collect::<Vec<_>>())
        .filter(|fields| fields.len() >= 4)
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn id(name: &OsStr) -> Option<u32> {
    number(name.as_bytes().strip_prefix(b"#")?)
}

fn nameless(uid: u32) -> Account {
    Account {
        name: format!("#{uid}").into(),
        uid,
        gid: uid,
        home: "/".into(),
        shell: "/bin/sh".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: b"root:x:0:0:r:/root:/bin/bash\nbad\nuser:x:1000:1000::/home/user:\n".to_vec(),
            group: b"root:x:0:\nuser:x:1000:\nsudo:x:27:a,user\n".to_vec(),
        }
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let user = accounts().user("user".as_ref()).unwrap();
        assert_eq!((user.uid, user.shell.to_str()), (1000, Some("/bin/sh")));
        assert_eq!(accounts().user("#1000".as_ref()), Some(user));
        assert_eq!(accounts().user("#7".as_ref()).unwrap().uid, 7);
        assert_eq!(accounts().user("nobody".as_ref()), None);
        assert_eq!(accounts().user("bad".as_ref()), None);
    }

    #[test]
    fn groups_are_the_primary_and_the_listed() {
        let accounts = accounts();
        let user = accounts.user("user".as_ref()).unwrap();
        assert_eq!(accounts.groups_of(&user), [1000, 27]);
        assert_eq!(accounts.group("sudo".as_ref()), Some(27));
        assert_eq!(accounts.group("none".as_ref()), None);
    }
}
