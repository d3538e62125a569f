//! Needs root, as the server does: owners, whiteouts and opaque marks are root's.

use std::{
    fs,
    io::Cursor,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::PathBuf,
};

use tar::{EntryType, Header};
use tempfile::TempDir;

use super::*;

mod properties;

/// Writes archives that no decent tool would write.
#[derive(Default)]
struct TarBuilder(Vec<u8>);

impl TarBuilder {
    fn raw(
        mut self,
        kind: u8,
        name: &[u8],
        link: &[u8],
        data: &[u8],
        edit: impl Fn(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        {
            let old = header.as_old_mut();
            old.name
                .get_mut(..name.len())
                .unwrap()
                .copy_from_slice(name);
            old.linkname
                .get_mut(..link.len())
                .unwrap()
                .copy_from_slice(link);
        }
        header.set_entry_type(EntryType::new(kind));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(data.len() as u64);
        edit(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, data: &str) -> Self {
        self.raw(b'0', name.as_bytes(), b"", data.as_bytes(), |_| {})
    }

    fn directory(self, name: &str) -> Self {
        self.raw(b'5', name.as_bytes(), b"", b"", |header| {
            header.set_mode(0o755);
        })
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.raw(b'2', name.as_bytes(), target.as_bytes(), b"", |_| {})
    }

    fn hard_link(self, name: &str, target: &str) -> Self {
        self.raw(b'1', name.as_bytes(), target.as_bytes(), b"", |_| {})
    }

    fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            data.extend_from_slice(format!("{length} {key}=").as_bytes());
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.raw(b'x', b"pax", b"", &data, |_| {})
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

struct Layer {
    around: TempDir,
    root: PathBuf,
}

impl Layer {
    fn new() -> Self {
        let around = tempfile::tempdir().unwrap();
        let root = around.path().join("a/b/root");
        fs::create_dir_all(&root).unwrap();
        Self { around, root }
    }

    fn unpack(&self, archive: &[u8]) -> Result<Unpacked, LayerError> {
        self.unpack_with(archive, Bounds::new(1 << 30, 0))
    }

    fn unpack_with(&self, archive: &[u8], bounds: Bounds) -> Result<Unpacked, LayerError> {
        let size = archive.len() as u64;
        unpack(
            Cursor::new(archive),
            size,
            &self.root,
            bounds,
            &Arc::default(),
        )
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap()
    }

    /// Whether nothing was written beside the root.
    fn outside_is_clean(&self) -> bool {
        let names = |path: &Path| -> Vec<_> {
            let entries = fs::read_dir(path).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        names(self.around.path()) == ["a"]
            && names(&self.around.path().join("a")) == ["b"]
            && names(&self.around.path().join("a/b")) == ["root"]
    }

    fn is_whiteout(&self, name: &str) -> bool {
        let found = fs::symlink_metadata(self.root.join(name)).unwrap();
        found.file_type().is_char_device() && found.rdev() == 0
    }

    fn is_opaque(&self, name: &str) -> bool {
        let directory = fs::File::open(self.root.join(name)).unwrap();
        tree::is_opaque(directory.as_fd())
    }
}

fn unpacked(archive: TarBuilder) -> Layer {
    let layer = Layer::new();
    layer.unpack(&archive.end()).unwrap();
    layer
}

fn error(archive: TarBuilder) -> String {
    let layer = Layer::new();
    let error = layer.unpack(&archive.end()).unwrap_err().to_string();
    assert!(layer.outside_is_clean());
    error
}

#[test]
fn what_no_disk_takes_is_the_archives_fault() {
    let long = "x".repeat(300);
    for (archive, name) in [
        (
            TarBuilder::default().symlink("c", "c").file("c/a", "x"),
            "itself",
        ),
        (
            TarBuilder::default()
                .pax(&[("path", long.as_bytes())])
                .file("x", "x"),
            "too long",
        ),
        (
            TarBuilder::default().file("a/b", "x").hard_link("a", "a/b"),
            "in the directory that it replaces",
        ),
    ] {
        let error = Layer::new().unpack(&archive.end()).unwrap_err();
        assert!(matches!(error, LayerError::Entry { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn files_directories_links_and_pipes_come_out_as_they_went_in() {
    let layer = unpacked(
        TarBuilder::default()
            .raw(b'5', b"bin/", b"", b"", |header| {
                header.set_mode(0o2750);
                header.set_gid(42);
            })
            .raw(b'0', b"bin/su", b"", b"program", |header| {
                header.set_mode(0o4755);
                header.set_uid(1000);
                header.set_gid(65_535);
            })
            .hard_link("bin/su2", "bin/su")
            .symlink("bin/sh", "/usr/bin/dash")
            .raw(b'6', b"run/pipe", b"", b"", |header| header.set_mode(0o622)),
    );
    let program = fs::metadata(layer.root.join("bin/su")).unwrap();
    assert_eq!(program.mode() & 0o7777, 0o4755);
    assert_eq!((program.uid(), program.gid()), (1000, 65_535));
    assert_eq!((program.mtime(), program.nlink()), (1_000_000_000, 2));
    assert_eq!(layer.text("bin/su2"), "program");
    let folder = fs::metadata(layer.root.join("bin")).unwrap();
    assert_eq!((folder.mode() & 0o7777, folder.gid()), (0o2750, 42));
    assert_eq!(folder.mtime(), 1_000_000_000);
    let target = fs::read_link(layer.root.join("bin/sh")).unwrap();
    assert_eq!(target, Path::new("/usr/bin/dash"));
    let pipe = fs::symlink_metadata(layer.root.join("run/pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
    assert_eq!(pipe.mode() & 0o777, 0o622);
}

#[test]
fn the_digest_is_of_the_plain_archive_with_all_that_follows_it() {
    let mut archive = TarBuilder::default().file("a", "b").end();
    archive.extend_from_slice(b"behind the end");
    let unpacked = Layer::new().unpack(&archive).unwrap();
    assert_eq!(unpacked.diff_id, Digest::of(&archive));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&archive).unwrap();
    let zstd = zstd::encode_all(Cursor::new(&archive), 1).unwrap();
    for compressed in [gzip.finish().unwrap(), zstd] {
        let unpacked = Layer::new().unpack(&compressed).unwrap();
        assert_eq!(unpacked.diff_id, Digest::of(&archive));
    }
}

#[test]
fn names_that_climb_are_refused() {
    for name in [
        "../x",
        "a/../../x",
        "../../../../../../tmp/soulbox-escape",
        "..",
    ] {
        let text = error(TarBuilder::default().file(name, "x"));
        assert!(text.contains("leads out"), "{text}");
    }
    assert!(!Path::new("/tmp/soulbox-escape").exists());
}

#[test]
fn absolute_names_are_below_the_root() {
    let layer = unpacked(TarBuilder::default().file("/soulbox-absolute", "x"));
    assert_eq!(layer.text("soulbox-absolute"), "x");
    assert!(!Path::new("/soulbox-absolute").exists());
}

#[test]
fn writing_through_a_link_that_leads_out_is_refused() {
    for target in [
        "/tmp",
        "../../../../../../../../tmp",
        "../..",
        "/proc/self/root/tmp",
    ] {
        let archive = TarBuilder::default()
            .symlink("link", target)
            .file("link/soulbox-through", "x");
        let layer = Layer::new();
        let ended = layer.unpack(&archive.end());
        assert!(layer.outside_is_clean());
        assert!(!Path::new("/tmp/soulbox-through").exists());
        // A link to the root itself stays inside and is fine.
        assert_eq!(ended.is_ok(), target == "../..", "{target}");
    }
}

#[test]
fn links_are_followed_within_the_layer_as_if_it_were_the_root() {
    let layer = unpacked(
        TarBuilder::default()
            .directory("run/")
            .symlink("var/run", "/run")
            .symlink("var/up", "../../../run")
            .file("var/run/one", "1")
            .file("var/up/two", "2"),
    );
    assert_eq!(
        (layer.text("run/one"), layer.text("run/two")),
        ("1".into(), "2".into())
    );
}

#[test]
fn a_link_is_replaced_by_a_file_and_not_written_through() {
    let layer = unpacked(
        TarBuilder::default()
            .file("target", "old")
            .symlink("name", "target")
            .file("name", "new"),
    );
    assert_eq!(
        (layer.text("target"), layer.text("name")),
        ("old".into(), "new".into())
    );
}

#[test]
fn a_hard_link_is_replaced_and_not_written_through() {
    let layer = unpacked(
        TarBuilder::default()
            .file("one", "old")
            .hard_link("two", "one")
            .file("two", "new"),
    );
    assert_eq!(
        (layer.text("one"), layer.text("two")),
        ("old".into(), "new".into())
    );
}

#[test]
fn hard_links_lead_to_files_of_the_same_layer_only() {
    for target in [
        "../../../../etc/passwd",
        "/etc/passwd",
        "etc/passwd",
        "",
        "link/passwd",
        "wh",
    ] {
        let archive = TarBuilder::default()
            .symlink("link", "/etc")
            .file(".wh.wh", "")
            .hard_link("stolen", target);
        let text = error(archive);
        assert!(text.contains("hard link"), "{target}: {text}");
    }
    let text = error(TarBuilder::default().directory("d/").hard_link("e", "d"));
    assert!(text.contains("directory"), "{text}");
}

#[test]
fn a_hard_link_to_a_link_is_the_link_itself() {
    let layer = unpacked(
        TarBuilder::default()
            .symlink("a", "/etc/shadow")
            .hard_link("b", "a")
            .hard_link("a", "a"),
    );
    let target = fs::read_link(layer.root.join("b")).unwrap();
    assert_eq!(target, Path::new("/etc/shadow"));
}

#[test]
fn whiteouts_become_what_overlayfs_understands() {
    let layer = unpacked(
        TarBuilder::default()
            .file("etc/.wh.motd", "")
            .directory("srv/")
            .file("srv/.wh..wh..opq", "")
            .file("srv/new", "n")
            .file(".wh..wh.plnk", ""),
    );
    assert!(layer.is_whiteout("etc/motd"));
    assert!(layer.is_opaque("srv") && !layer.is_opaque("etc"));
    assert_eq!(layer.text("srv/new"), "n");
    assert!(!layer.root.join(".wh..wh.plnk").exists());
}

#[test]
fn whiteouts_do_not_touch_what_the_same_layer_adds() {
    let before = TarBuilder::default()
        .file(".wh.f", "")
        .file("f", "1")
        .file(".wh.d", "")
        .file("d/x", "2");
    let after = TarBuilder::default()
        .file("f", "1")
        .file(".wh.f", "")
        .file("d/x", "2")
        .file(".wh.d", "");
    let described = TarBuilder::default()
        .file(".wh.d", "")
        .directory("d/")
        .file("d/x", "2")
        .file("f", "1");
    for archive in [before, after, described] {
        let layer = unpacked(archive);
        assert_eq!(
            (layer.text("f"), layer.text("d/x")),
            ("1".into(), "2".into())
        );
        assert!(layer.is_opaque("d"));
    }
}

#[test]
fn whiteouts_below_what_took_a_directorys_place_have_nothing_to_hide() {
    let layer = unpacked(
        TarBuilder::default()
            .file("now-a-file", "f")
            .file("now-a-file/.wh.x", "")
            .directory("elsewhere/")
            .symlink("now-a-link", "elsewhere")
            .file("now-a-link/.wh.x", "")
            .file("now-a-link/deep/.wh..wh..opq", "")
            .file(".wh.gone", "")
            .file("gone/.wh.x", ""),
    );
    assert_eq!(layer.text("now-a-file"), "f");
    assert!(!layer.root.join("elsewhere/x").exists());
    let inside = fs::read_dir(layer.root.join("elsewhere")).unwrap().count();
    assert_eq!(inside, 0);
    assert!(layer.is_opaque("gone") && layer.is_whiteout("gone/x"));
}

#[test]
fn whiteouts_of_the_directory_itself_or_above_are_refused() {
    for name in ["a/.wh.", "a/.wh..", "a/.wh...", ".wh..."] {
        let text = error(TarBuilder::default().file(name, ""));
        assert!(text.contains("leads out"), "{name}: {text}");
    }
}

#[test]
fn devices_are_left_out_and_counted() {
    let archive = TarBuilder::default()
        .raw(b'3', b"dev/null", b"", b"", |_| {})
        .raw(b'4', b"dev/sda", b"", b"", |_| {});
    let layer = Layer::new();
    assert_eq!(layer.unpack(&archive.end()).unwrap().devices_left_out, 2);
    assert!(!layer.root.join("dev/null").exists());
}

#[test]
fn only_harmless_attributes_are_kept() {
    let capability: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let layer = unpacked(
        TarBuilder::default()
            .pax(&[
                ("SCHILY.xattr.user.note", b"hello\n"),
                ("SCHILY.xattr.user.overlay.opaque", b"y"),
                ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
                ("SCHILY.xattr.security.capability", capability),
            ])
            .file("ping", "p"),
    );
    let path = layer.root.join("ping");
    let mut names = [0_u8; 1024];
    let length = rustix::fs::listxattr(&path, &mut names).unwrap();
    let names = String::from_utf8_lossy(&names[..length]);
    let mut names: Vec<_> = names.split_terminator('\0').collect();
    names.retain(|name| *name != "security.selinux");
    names.sort_unstable();
    assert_eq!(names, ["security.capability", "user.note"]);
}

#[test]
fn long_names_of_both_kinds_are_read() {
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    let gnu = TarBuilder::default()
        .raw(
            b'L',
            b"././@LongLink",
            b"",
            format!("{long}\0").as_bytes(),
            |_| {},
        )
        .file("short", "gnu");
    let pax = TarBuilder::default()
        .pax(&[("path", long.as_bytes()), ("mtime", b"5.5"), ("uid", b"7")])
        .file("short", "pax");
    for (archive, text) in [(gnu, "gnu"), (pax, "pax")] {
        assert_eq!(unpacked(archive).text(&long), text);
    }
}

#[test]
fn owners_beyond_a_sandboxs_ids_are_refused_by_name() {
    let text =
        error(TarBuilder::default().raw(b'0', b"f", b"", b"", |header| header.set_uid(65_536)));
    assert!(text.contains("65536") && text.contains("\"f\""), "{text}");
    let text = error(
        TarBuilder::default()
            .pax(&[("gid", b"4294967295")])
            .file("f", ""),
    );
    assert!(text.contains("4294967295"), "{text}");
}

#[test]
fn sparse_and_unknown_entries_are_refused() {
    for kind in [b'S', b'V', b'!'] {
        let text = error(TarBuilder::default().raw(kind, b"f", b"", b"", |_| {}));
        assert!(text.contains("cannot be unpacked"), "{text}");
    }
}

#[test]
fn implied_directories_have_sensible_modes() {
    let layer = unpacked(
        TarBuilder::default()
            .file("tmp/a", "")
            .file("usr/share/b", "")
            .file("root/c", ""),
    );
    for (name, mode) in [
        ("tmp", 0o1777),
        ("usr", 0o755),
        ("usr/share", 0o755),
        ("root", 0o700),
    ] {
        let found = fs::metadata(layer.root.join(name)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (mode, 0), "{name}");
    }
}

#[test]
fn a_file_takes_the_place_of_a_directory_and_back() {
    let layer = unpacked(
        TarBuilder::default()
            .file("x/deep/down", "1")
            .file("x", "2")
            .directory("x/")
            .file("x/y", "3"),
    );
    assert_eq!(layer.text("x/y"), "3");
    assert!(!layer.root.join("x/deep").exists());
    let text = error(TarBuilder::default().file("x", "1").file("x/y", "2"));
    assert!(text.contains("is none"), "{text}");
}

#[test]
fn bounds_hold() {
    let archive = TarBuilder::default()
        .file("a", &"x".repeat(5000))
        .file("b", "")
        .end();
    let usual = Bounds::new(1 << 30, 0);
    let few = Bounds {
        entries: 1,
        ..usual
    };
    let small = Bounds {
        bytes: 4000,
        ..usual
    };
    let reserve = Bounds {
        min_free: u64::MAX,
        ..usual
    };
    let unpack = |bounds| Layer::new().unpack_with(&archive, bounds).unwrap_err();
    assert!(matches!(unpack(few), LayerError::TooMany(1)));
    assert!(matches!(unpack(small), LayerError::TooLarge(4000)));
    assert!(matches!(unpack(reserve), LayerError::NoSpace));
}

#[test]
fn bombs_are_recognized_by_their_ratio() {
    let archive = TarBuilder::default()
        .file("zeros", &"\0".repeat(4 << 20))
        .end();
    let bomb = zstd::encode_all(Cursor::new(&archive), 1).unwrap();
    let bounds = Bounds {
        ratio_from: 1 << 20,
        ..Bounds::new(1 << 30, 0)
    };
    let error = Layer::new().unpack_with(&bomb, bounds).unwrap_err();
    assert!(matches!(error, LayerError::Bomb(200)), "{error}");
}

#[test]
fn huge_extended_headers_do_not_fill_the_memory() {
    for kind in [b'x', b'g', b'L', b'K'] {
        let text = error(TarBuilder::default().raw(kind, b"x", b"", b"", |header| {
            header.set_size(8 << 30);
        }));
        assert!(text.contains("too long"), "{text}");
    }
}

#[test]
fn damaged_archives_are_refused() {
    let whole = TarBuilder::default().file("a", &"x".repeat(2000)).end();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&whole).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(Cursor::new(&whole), 1).unwrap();
    for cut in [
        &whole[..700],
        &whole[..512 + 100],
        &gzip[..gzip.len() - 5],
        &zstd[..zstd.len() - 5],
    ] {
        let error = Layer::new().unpack(cut).unwrap_err();
        assert!(matches!(error, LayerError::Damaged(_)), "{error}");
    }
    let error = Layer::new().unpack(b"\xfd7zXZ\0...").unwrap_err();
    assert!(error.to_string().contains("xz"), "{error}");
}

#[test]
fn giving_up_ends_the_work() {
    let archive = TarBuilder::default().file("a", "b").end();
    let layer = Layer::new();
    let flag = Arc::new(AtomicBool::new(true));
    let ended = unpack(
        Cursor::new(&archive),
        1,
        &layer.root,
        Bounds::new(1 << 30, 0),
        &flag,
    );
    assert!(matches!(ended, Err(LayerError::GivenUp)));
}

/// Small and repeatable; good enough to choose bytes to break.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// Entries that nobody has thought of together, and bytes that are simply wrong: never a panic,
/// never anything outside.
#[test]
fn random_archives_never_reach_outside() {
    let names = [
        "a",
        "a/b",
        "a/b/c",
        "..",
        "../x",
        "/abs",
        "./a",
        "link",
        "link/x",
        "link/../y",
        ".wh.a",
        "a/.wh.b",
        "a/.wh..wh..opq",
        ".wh..wh..opq",
        "link/.wh.x",
        ".wh.link",
        "",
    ];
    let targets = [
        "a", "..", "../../..", "/", "/etc", "/tmp", "link", ".", "a/b", "",
    ];
    let started = std::time::Instant::now();
    for seed in 1..600_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut maker = TarBuilder::default();
        for _ in 0..random.below(12) {
            let name = names[random.below(names.len())];
            let target = targets[random.below(targets.len())];
            maker = match random.below(6) {
                0 => maker.directory(name),
                1 => maker.symlink(name, target),
                2 => maker.hard_link(name, target),
                3 => maker.raw(b'6', name.as_bytes(), b"", b"", |_| {}),
                4 => maker.pax(&[("path", name.as_bytes())]).file("p", "data"),
                _ => maker.file(name, "data"),
            };
        }
        let mut archive = maker.end();
        if seed % 3 == 0 {
            for _ in 0..random.below(20) {
                let at = random.below(archive.len());
                archive[at] = u8::try_from(random.below(256)).unwrap();
            }
        }
        let layer = Layer::new();
        layer.unpack_with(&archive, Bounds::new(1 << 20, 0)).ok();
        assert!(layer.outside_is_clean(), "seed {seed}");
        if started.elapsed() > std::time::Duration::from_secs(20) {
            break;
        }
    }
}
