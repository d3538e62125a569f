//! `/etc`: generated where it is about identity, copied from the host where programs need it.

use std::path::Path;

use crate::{
    Result,
    accounts::Accounts,
    certificates::Certificates,
    credentials,
    error::At,
    layer::{Layer, ROOT, sorted_names},
};

/// Copied as far as everybody may read it. A name not on this list stays on the host.
const COPIED: &[&str] = &[
    "X11",
    "adduser.conf",
    "alternatives",
    "bash_completion.d",
    "bindresvport.blacklist",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debconf.conf",
    "debian_version",
    "deluser.conf",
    "dpkg",
    "ethertypes",
    "fedora-release",
    "fonts",
    "gai.conf",
    "gprofng.rc",
    "groff",
    "gss",
    "host.conf",
    "inputrc",
    "issue",
    "issue.net",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "libaudit.conf",
    "libnl-3",
    "locale.alias",
    "locale.conf",
    "locale.gen",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mailcap",
    "manpath.config",
    "mime.types",
    "mke2fs.conf",
    "nanorc",
    "netconfig",
    "networks",
    "os-release",
    "pam.conf",
    "pam.d",
    "perl",
    "protocols",
    "redhat-release",
    "rmt",
    "rpc",
    "selinux",
    "services",
    "sgml",
    "shells",
    "system-release",
    "terminfo",
    "timezone",
    "ucf.conf",
    "vim",
    "vimrc",
    "xattr.conf",
    "xdg",
    "xml",
];
/// As [`COPIED`], for names with a version in them.
const COPIED_PREFIXES: &[&str] = &["java-", "python3"];
/// Copied without the lines that hold passwords or tokens.
const FILTERED: &[&str] = &["npmrc", "pip.conf", "wgetrc"];

const HOST_NAME: &str = "e2b.local";

pub(crate) fn build(layer: &mut Layer, host: &Path, certificates: &Certificates) -> Result<()> {
    let etc = host.join("etc");
    layer.directory("etc", 0o755, ROOT)?;
    for name in sorted_names(&etc)? {
        let Some(name) = name.to_str() else { continue };
        let wanted = COPIED.contains(&name) || COPIED_PREFIXES.iter().any(|p| name.starts_with(p));
        if wanted {
            layer.copy(&etc.join(name), &Path::new("etc").join(name), &|_| true)?;
        } else if FILTERED.contains(&name) {
            copy_filtered(layer, &etc, name)?;
        }
    }
    trust(layer, &etc, certificates)?;
    packages(layer, &etc)?;
    security(layer, &etc)?;
    Accounts::of(host).write(layer)?;
    identity(layer)
}

fn copy_filtered(layer: &mut Layer, etc: &Path, name: &str) -> Result<()> {
    let path = etc.join(name);
    let Ok(meta) = std::fs::symlink_metadata(&path) else {
        return Ok(());
    };
    if meta.is_file() && readable_by_all(&meta) {
        let text = credentials::harmless_lines(&std::fs::read(&path).at("read", &path)?);
        layer.file(&format!("etc/{name}"), text, 0o644, ROOT)?;
    }
    Ok(())
}

fn readable_by_all(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    meta.mode() & 0o004 != 0
}

/// Certificates, never keys, whatever the host's modes say.
fn trust(layer: &mut Layer, etc: &Path, certificates: &Certificates) -> Result<()> {
    let no_keys = |path: &Path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        let key = Path::new(&name).extension().is_some_and(|e| e == "key");
        name != "private" && !key && !name.contains("snakeoil")
    };
    layer.copy(&etc.join("ssl"), Path::new("etc/ssl"), &no_keys)?;
    layer.copy(&etc.join("pki"), Path::new("etc/pki"), &no_keys)?;
    layer.file(
        "etc/ssl/certs/ca-certificates.crt",
        certificates.bundle(),
        0o644,
        ROOT,
    )
}

/// The host's sources of packages, as far as they need no password.
fn packages(layer: &mut Layer, etc: &Path) -> Result<()> {
    for name in ["apt", "dnf", "yum.repos.d"] {
        let source = etc.join(name);
        let harmless = |path: &Path| {
            let file_name = path.file_name().unwrap_or_default().to_string_lossy();
            let full = source.join(path);
            !file_name.starts_with("auth.conf")
                && (!is_configuration(&file_name)
                    || std::fs::read(full).is_ok_and(|bytes| !credentials::has_any(&bytes)))
        };
        layer.copy(&source, &Path::new("etc").join(name), &harmless)?;
    }
    if etc.join("apt").is_dir() {
        // apt drops to a user of its own for downloads, which then cannot write where root of a
        // sandbox may, and needs capabilities that a sandbox does not have.
        let text = "APT::Sandbox::User \"root\";\n";
        layer.file("etc/apt/apt.conf.d/99soulbox", text, 0o644, ROOT)?;
    }
    Ok(())
}

/// Files of package managers in which somebody may have written `https://me:token@…`. Keyrings
/// are binary or armoured and hold public keys only.
fn is_configuration(name: &str) -> bool {
    let path = Path::new(name);
    let keyring = path
        .extension()
        .is_some_and(|e| e == "gpg" || e == "asc" || e == "pgp");
    path.extension()
        .is_some_and(|e| e == "list" || e == "sources" || e == "repo" || e == "conf")
        || (!keyring && name.starts_with(|c: char| c.is_ascii_digit()))
}

fn security(layer: &mut Layer, etc: &Path) -> Result<()> {
    // Limits of the host's users would make every `su` and `sudo` inside fail.
    let no_limits = |path: &Path| {
        !path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .starts_with("limits")
    };
    layer.copy(&etc.join("security"), Path::new("etc/security"), &no_limits)?;
    layer.file("etc/security/limits.conf", "", 0o644, ROOT)?;
    layer.directory("etc/security/limits.d", 0o755, ROOT)?;
    layer.file("etc/sudoers", include_str!("files/sudoers"), 0o440, ROOT)?;
    layer.directory("etc/sudoers.d", 0o750, ROOT)
}

fn identity(layer: &mut Layer) -> Result<()> {
    layer.file("etc/hostname", format!("{HOST_NAME}\n"), 0o644, ROOT)?;
    let hosts = format!(
        "127.0.0.1\tlocalhost\n127.0.1.1\t{HOST_NAME}\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n"
    );
    layer.file("etc/hosts", hosts, 0o644, ROOT)?;
    // Replaced per node by the address of its forwarder.
    layer.file("etc/resolv.conf", "nameserver 127.0.0.1\n", 0o644, ROOT)?;
    let nsswitch = "passwd: files\ngroup: files\nshadow: files\ngshadow: files\n\
        hosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n";
    layer.file("etc/nsswitch.conf", nsswitch, 0o644, ROOT)?;
    layer.file("etc/profile", include_str!("files/profile"), 0o644, ROOT)?;
    layer.directory("etc/profile.d", 0o755, ROOT)?;
    layer.file(
        "etc/bash.bashrc",
        include_str!("files/bash.bashrc"),
        0o644,
        ROOT,
    )?;
    layer.file("etc/environment", "", 0o644, ROOT)?;
    layer.file("etc/fstab", "", 0o644, ROOT)?;
    layer.file("etc/motd", "", 0o644, ROOT)?;
    layer.file("etc/machine-id", "", 0o644, ROOT)?;
    layer.link("etc/mtab", "../proc/self/mounts")?;
    for name in [
        "default",
        "init.d",
        "cron.d",
        "cron.daily",
        "logrotate.d",
        "systemd",
    ] {
        layer.directory(&format!("etc/{name}"), 0o755, ROOT)?;
    }
    Ok(())
}
