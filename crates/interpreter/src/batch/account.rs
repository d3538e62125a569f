//! The account that programs run under, read from `/etc/passwd`.
//!
//! Never through the C library: a static program must not load the sandbox's NSS modules.

use std::{fs::File, io::Read, path::PathBuf};

const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
    /// Absent when we are not root, and can only be who we are.
    pub(crate) ids: Option<(u32, u32)>,
}

impl Account {
    /// An account that does not exist is nobody's: programs then run as whoever we are.
    pub(crate) fn find(name: &str) -> Self {
        let mut text = String::new();
        if let Ok(file) = File::open("/etc/passwd") {
            let _partial = file.take(MAX_FILE).read_to_string(&mut text);
        }
        let is_root = rustix::process::geteuid().is_root();
        match parse(name, &text) {
            Some((ids, home)) => Self {
                name: name.to_owned(),
                home,
                ids: is_root.then_some(ids),
            },
            None => Self {
                name: name.to_owned(),
                home: std::env::temp_dir(),
                ids: None,
            },
        }
    }
}

fn parse(name: &str, passwd: &str) -> Option<((u32, u32), PathBuf)> {
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let fields: Vec<&str> = line.split(':').collect();
    let [_, _, uid, gid, _, home, ..] = fields.as_slice() else {
        return None;
    };
    Some(((uid.parse().ok()?, gid.parse().ok()?), PathBuf::from(home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_name_and_broken_ones_are_nobody() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1001:,,,:/home/user:/bin/sh\nodd:x";
        assert_eq!(
            parse("user", passwd),
            Some(((1000, 1001), "/home/user".into()))
        );
        assert_eq!(parse("odd", passwd), None);
        assert_eq!(parse("use", passwd), None);
    }
}
