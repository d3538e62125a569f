//! Against a made-up host. Needs root: layers hold devices and files of other owners.

use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use super::*;

struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return None;
        }
        let fake = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let host = fake.host();
        for dir in [
            "usr/bin",
            "usr/sbin",
            "usr/lib/modules/6.1",
            "usr/share",
            "etc/ssl/certs",
        ] {
            fs_err::create_dir_all(host.join(dir)).unwrap();
        }
        for name in ["bin", "sbin", "lib"] {
            symlink(format!("usr/{name}"), host.join(name)).unwrap();
        }
        fake.put("usr/bin/python3", "elf", 0o755);
        fake.put("usr/lib/modules/6.1/x.ko", "elf", 0o644);
        fake.put("usr/share/private/key", "K", 0o644);
        fake.mode("usr/share/private", 0o711);
        fake.put("usr/share/mixed/secret", "S", 0o640);
        fake.put("usr/share/mixed/open", "O", 0o644);
        fake.put("usr/etc/npmrc", "//r.example/:_authToken=t\n", 0o644);
        fake.put(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/:/bin/sh\n",
            0o644,
        );
        fake.put("etc/shells", "/bin/bash\n", 0o644);
        fake.put("etc/perl/secret.pl", "P", 0o600);
        fake.put("etc/ssl/private/server.pem", "K", 0o644);
        fake.put("etc/ssl/certs/server.key", "K", 0o644);
        fake.put("etc/wireguard/wg0.conf", "K", 0o644);
        fake.put("etc/apt/auth.conf.d/a.conf", "machine x\n", 0o644);
        fake.put(
            "etc/apt/sources.list.d/a.list",
            "deb https://u:p@x.example a b\n",
            0o644,
        );
        fake.put(
            "etc/apt/sources.list.d/b.list",
            "deb https://x.example a b\n",
            0o644,
        );
        fake.put(
            "etc/pip.conf",
            "[global]\nindex-url = https://u:p@x\ncert = /c\n",
            0o644,
        );
        fake.put("etc/apt/trusted.gpg.d/k.gpg", "\u{99}key", 0o644);
        fake.put("var/lib/dpkg/status", "Package: a\n", 0o644);
        fake.put("var/lib/dpkg/lock", "", 0o640);
        fake.put("opt/app/bin", "x", 0o755);
        fake.put("opt/app/token", "x", 0o600);
        fake.put("sudo", "static", 0o755);
        Some(fake)
    }

    fn host(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    fn put(&self, path: &str, text: &str, mode: u32) {
        let full = self.host().join(path);
        fs_err::create_dir_all(full.parent().unwrap()).unwrap();
        fs_err::write(&full, text).unwrap();
        self.mode(path, mode);
    }

    fn mode(&self, path: &str, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        fs_err::set_permissions(self.host().join(path), mode).unwrap();
    }

    fn options(&self) -> HostOptions {
        HostOptions {
            include_opt: false,
            sudo: self.host().join("sudo"),
            extra_ca: Vec::new(),
        }
    }

    fn prepare(&self, options: &HostOptions) -> Template {
        prepare(
            &self.host(),
            &self.dir.path().join("data/templates/base"),
            options,
        )
        .unwrap()
    }
}

fn is_whiteout(path: &Path) -> bool {
    let meta = fs_err::symlink_metadata(path).unwrap();
    meta.file_type().is_char_device() && meta.rdev() == 0
}

#[test]
fn private_parts_of_usr_are_hidden_and_the_rest_is_not() {
    let Some(fake) = Fake::new() else { return };
    let template = fake.prepare(&fake.options());
    assert_eq!(template.overlays[1].target, Path::new("/usr"));
    assert_eq!(template.overlays[1].lower[1], fake.host().join("usr"));
    let layer = &template.overlays[1].lower[0];
    for hidden in [
        "share/private",
        "share/mixed/secret",
        "lib/modules",
        "etc/npmrc",
    ] {
        assert!(is_whiteout(&layer.join(hidden)), "{hidden}");
    }
    assert!(!layer.join("share/mixed/open").exists());
    assert!(fs_err::symlink_metadata(layer.join("bin/python3")).is_err());
}

#[test]
fn what_the_host_lacks_is_added() {
    let Some(fake) = Fake::new() else { return };
    let layer = fake
        .prepare(&fake.options())
        .overlays
        .remove(1)
        .lower
        .remove(0);
    assert_eq!(
        fs_err::read_link(layer.join("bin/python")).unwrap(),
        Path::new("python3")
    );
    let sudo = fs_err::metadata(layer.join("bin/sudo")).unwrap();
    assert_eq!((sudo.mode() & 0o7777, sudo.uid()), (0o4755, 0));
}

#[test]
fn users_of_the_host_do_not_reach_the_set_uid_helper() {
    let Some(fake) = Fake::new() else { return };
    let layer = fake
        .prepare(&fake.options())
        .overlays
        .remove(1)
        .lower
        .remove(0);
    let above = fs_err::metadata(layer.parent().unwrap()).unwrap();
    assert_eq!(above.mode() & 0o7777, 0o700);
}

#[test]
fn a_sudo_that_not_everybody_may_read_is_replaced_by_ours() {
    let Some(fake) = Fake::new() else { return };
    fake.put("usr/bin/sudo", "host's", 0o4711);
    let layer = fake
        .prepare(&fake.options())
        .overlays
        .remove(1)
        .lower
        .remove(0);
    assert_eq!(
        fs_err::read_to_string(layer.join("bin/sudo")).unwrap(),
        "static"
    );
    fake.mode("usr/bin/sudo", 0o4755);
    fake.put("usr/bin/other", "", 0o755);
    let layer = fake
        .prepare(&fake.options())
        .overlays
        .remove(1)
        .lower
        .remove(0);
    assert!(fs_err::symlink_metadata(layer.join("bin/sudo")).is_err());
}

#[test]
fn the_root_holds_nothing_private_of_the_host() {
    let Some(fake) = Fake::new() else { return };
    let root = fake
        .prepare(&fake.options())
        .overlays
        .remove(0)
        .lower
        .remove(0);
    for absent in [
        "etc/wireguard",
        "etc/ssl/private",
        "etc/ssl/certs/server.key",
        "etc/perl/secret.pl",
        "etc/apt/auth.conf.d",
        "etc/apt/sources.list.d/a.list",
        "var/lib/dpkg/lock",
    ] {
        assert!(!root.join(absent).exists(), "{absent}");
    }
    let read = |path: &str| fs_err::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("etc/pip.conf"), "[global]\ncert = /c\n");
    assert!(!read("etc/passwd").contains("ada"));
    for present in [
        "etc/shells",
        "etc/apt/sources.list.d/b.list",
        "etc/apt/trusted.gpg.d/k.gpg",
        "var/lib/dpkg/status",
        "etc/ssl/certs/ca-certificates.crt",
        "var/tmp",
        "etc/resolv.conf",
    ] {
        assert!(root.join(present).exists(), "{present}");
    }
    let home = fs_err::metadata(root.join("home/user/.bashrc")).unwrap();
    assert_eq!((home.uid(), home.gid()), (1000, 1000));
    let mode = |path: &str| fs_err::metadata(root.join(path)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("tmp"), mode("root"), mode("etc/sudoers")),
        (0o1777, 0o700, 0o440)
    );
}

#[test]
fn a_link_of_the_host_never_leads_our_writes_out_of_the_layer() {
    let Some(fake) = Fake::new() else { return };
    let outside = fake.dir.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    fs_err::remove_dir_all(fake.host().join("etc/ssl/certs")).unwrap();
    symlink(&outside, fake.host().join("etc/ssl/certs")).unwrap();
    let root = fake
        .prepare(&fake.options())
        .overlays
        .remove(0)
        .lower
        .remove(0);
    assert!(root.join("etc/ssl/certs/ca-certificates.crt").is_file());
    assert_eq!(fs_err::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn an_unchanged_host_gives_the_same_build_without_work() {
    let Some(fake) = Fake::new() else { return };
    let first = fake.prepare(&fake.options());
    assert_eq!(fake.prepare(&fake.options()), first);
    fake.put("usr/share/mixed/new", "", 0o600);
    let second = fake.prepare(&fake.options());
    assert_eq!(second.id, first.id);
    assert_ne!(second.build_id, first.build_id);
    assert_eq!(second.overlays[0], first.overlays[0]);
    assert!(is_whiteout(
        &second.overlays[1].lower[0].join("share/mixed/new")
    ));
}

#[test]
fn opt_is_shown_when_asked_for() {
    let Some(fake) = Fake::new() else { return };
    assert_eq!(fake.prepare(&fake.options()).overlays.len(), 2);
    let template = fake.prepare(&HostOptions {
        include_opt: true,
        ..fake.options()
    });
    assert_eq!(template.overlays[2].target, Path::new("/opt"));
    assert!(is_whiteout(
        &template.overlays[2].lower[0].join("app/token")
    ));
}

#[test]
fn extra_authorities_reach_the_bundle_and_the_environment() {
    let Some(fake) = Fake::new() else { return };
    assert!(
        !fake
            .prepare(&fake.options())
            .env
            .contains_key("NODE_EXTRA_CA_CERTS")
    );
    let pem = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n";
    fake.put("proxy.pem", pem, 0o600);
    let extra_ca = vec![fake.host().join("proxy.pem")];
    let template = fake.prepare(&HostOptions {
        extra_ca,
        ..fake.options()
    });
    assert_eq!(template.env["NODE_EXTRA_CA_CERTS"], certificates::BUNDLE);
    let bundle = template.overlays[0].lower[0].join("etc/ssl/certs/ca-certificates.crt");
    assert_eq!(fs_err::read_to_string(bundle).unwrap(), pem);
    let source = template.overlays[1].lower[0].join("local/share/ca-certificates/soulbox-0.crt");
    assert_eq!(fs_err::read_to_string(source).unwrap(), pem);
}

#[test]
fn only_layers_that_are_kept_survive_pruning() {
    let Some(fake) = Fake::new() else { return };
    let first = fake.prepare(&fake.options());
    fake.put("usr/share/mixed/new", "", 0o600);
    let second = fake.prepare(&fake.options());
    let keep: Vec<_> = second
        .overlays
        .iter()
        .flat_map(|o| o.lower.clone())
        .collect();
    let dir = fake.dir.path().join("data/templates/base");
    assert_eq!(
        crate::prune(&dir, &keep).unwrap(),
        [first.overlays[1].lower[0].clone()]
    );
    assert_eq!(fake.prepare(&fake.options()), second);
    assert!(fake.host().join("usr/bin/python3").exists());
}

#[test]
fn a_host_with_separate_bin_is_refused() {
    let Some(fake) = Fake::new() else { return };
    fs_err::remove_file(fake.host().join("lib")).unwrap();
    fs_err::create_dir(fake.host().join("lib")).unwrap();
    let error = prepare(&fake.host(), fake.dir.path(), &fake.options()).unwrap_err();
    assert!(matches!(error, Error::NotUsrMerged { .. }));
}
