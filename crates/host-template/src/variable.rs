//! `/var`: what package managers know about `/usr`, and empty places for the rest.

use std::path::Path;

use crate::{
    Result,
    layer::{Layer, Owner, ROOT},
};

/// The state of tools that scripts of packages call; without it an upgrade inside fails.
const STATE: &[&str] = &[
    "aspell",
    "ca-certificates-java",
    "dictionaries-common",
    "emacsen-common",
    "ispell",
    "pam",
    "python",
    "rpm",
    "sgml-base",
    "shells.state",
    "ucf",
    "vim",
    "xml-core",
];

pub(crate) fn build(layer: &mut Layer, host: &Path) -> Result<()> {
    let lib = host.join("var/lib");
    for name in [
        "var",
        "var/backups",
        "var/cache",
        "var/cache/man",
        "var/lib",
        "var/lib/misc",
        "var/lib/git",
        "var/lib/apt",
        "var/lib/apt/lists",
        "var/lib/apt/lists/partial",
        "var/lib/apt/mirrors/partial",
        "var/lib/apt/periodic",
        "var/cache/apt",
        "var/cache/apt/archives",
        "var/cache/apt/archives/partial",
        "var/cache/debconf",
        "var/log",
        "var/log/apt",
        "var/mail",
        "var/opt",
        "var/spool",
        "var/lib/systemd",
    ] {
        layer.directory(name, 0o755, ROOT)?;
    }
    layer.directory("var/cache/ldconfig", 0o700, ROOT)?;
    layer.directory("var/local", 0o2775, Owner { uid: 0, gid: 50 })?;
    layer.directory("var/tmp", 0o1777, ROOT)?;
    layer.link("var/run", "/run")?;
    layer.link("var/lock", "/run/lock")?;
    layer.link("var/spool/mail", "../mail")?;

    let no_locks = |path: &Path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        let lock = Path::new(&name).extension().is_some_and(|e| e == "lock");
        !lock && !name.starts_with("lock") && !name.ends_with("-old")
    };
    layer.copy(&lib.join("dpkg"), Path::new("var/lib/dpkg"), &no_locks)?;
    layer.copy(
        &lib.join("apt/extended_states"),
        Path::new("var/lib/apt/extended_states"),
        &|_| true,
    )?;
    for name in STATE {
        layer.copy(&lib.join(name), &Path::new("var/lib").join(name), &no_locks)?;
    }
    for name in ["config.dat", "templates.dat"] {
        let path = Path::new("var/cache/debconf").join(name);
        layer.copy(&host.join(&path), &path, &|_| true)?;
    }
    layer.file("var/cache/debconf/passwords.dat", "", 0o600, ROOT)
}
