//! Bubblewrap.

use std::{ffi::OsString, path::Path};

use super::{
    WORD,
    program::{Program, Until, find},
};
use crate::{Contender, Failure};

/// Links of a merged `/usr`, which programs and their loader are found by.
const LINKS: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

pub(super) async fn new() -> Result<Box<dyn Contender>, Failure> {
    let program = Program {
        name: "bwrap",
        method: "bwrap --unshare-all over the host's /usr, with a /proc, a /dev and a /tmp of its \
                 own, runs echo; until its output has arrived. No writable root, no limits, no \
                 address."
            .to_owned(),
        line: command_line(&find("bwrap")?),
        until: Until::FirstOutput,
    };
    program.tried().await
}

fn command_line(bwrap: &Path) -> Vec<OsString> {
    let mut words = vec![bwrap.as_os_str().to_owned()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    add(&["--unshare-all", "--die-with-parent"]);
    add(&["--ro-bind", "/usr", "/usr"]);
    for name in LINKS {
        let workspace = format!("/{name}");
        if Path::new(&workspace).is_symlink() {
            add(&["--symlink", &format!("usr/{name}"), &workspace]);
        } else if Path::new(&workspace).is_dir() {
            add(&["--ro-bind", &workspace, &workspace]);
        }
    }
    add(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    add(&["echo", WORD]);
    words
}
