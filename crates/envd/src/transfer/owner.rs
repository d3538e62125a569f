//! The owner of copied files.

use super::Error;
use crate::users;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// As the archive says.
    Kept,
    All {
        uid: u32,
        gid: u32,
    },
}

impl Ownership {
    /// The owner of something of which the archive says `uid` and `gid`.
    pub(super) fn of(self, uid: u32, gid: u32) -> (u32, u32) {
        match self {
            Self::Kept => (uid, gid),
            Self::All { uid, gid } => (uid, gid),
        }
    }
}

/// `user` or `user:group`, names or numbers. A user alone stands for the group of the same name too.
pub(super) fn parse(owner: &str) -> Result<Ownership, Error> {
    let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
    let (uid, login_group) = match (users::lookup(user), user.parse::<u32>()) {
        (Ok(found), _) => (found.uid, found.gid),
        (Err(_), Ok(number)) => (number, number),
        (Err(_), Err(_)) => return Err(Error::Move(format!("invalid user: '{user}'"))),
    };
    let named = |name: &str| users::group(name).or_else(|| name.parse().ok());
    let gid = if group.is_empty() {
        // Most users have a group of their own; those that do not are in their first one.
        users::group(user).unwrap_or(login_group)
    } else {
        named(group).ok_or_else(|| Error::Move(format!("invalid group: '{group}'")))?
    };
    // To the kernel this one means "leave it as it is".
    if [uid, gid].contains(&u32::MAX) {
        return Err(Error::Move(format!("invalid owner: '{owner}'")));
    }
    Ok(Ownership::All { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_taken_alone_and_in_pairs() {
        let all = |uid, gid| Ownership::All { uid, gid };
        assert_eq!(parse("root").unwrap(), all(0, 0));
        assert_eq!(parse("root:daemon").unwrap(), all(0, 1));
        assert_eq!(parse("12345").unwrap(), all(12345, 12345));
        assert_eq!(parse("12345:root").unwrap(), all(12345, 0));
        assert_eq!(parse("root:77").unwrap(), all(0, 77));
        assert_eq!(parse("daemon:").unwrap(), all(1, 1));
        // A user without a group of its name: its login group.
        assert_eq!(parse("sync").unwrap(), all(4, 65534));
    }

    #[test]
    fn strangers_are_refused() {
        for owner in [
            "nobody-here",
            "root:nobody-here",
            "",
            ":",
            "-1",
            "4294967295",
            "0:4294967295",
        ] {
            assert!(parse(owner).is_err(), "{owner:?}");
        }
    }
}
