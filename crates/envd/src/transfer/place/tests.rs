use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use super::*;
use crate::transfer::{
    archive::{Archive, decompress},
    extract::Extractor,
    sample::Tar,
    scratch::Scratch,
};

struct Sandbox {
    root: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// `dest` is relative to the sandbox's root.
    fn copy(&self, tar: Tar, src: &str, dest: &str, more: &str) -> Result<(), String> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("src", src)
            .append_pair("dest", dest)
            .append_pair("workdir", self.root.path().to_str().unwrap())
            .finish();
        let copied = || {
            let request = CopyRequest::parse(Some(&format!("{query}&{more}")))?;
            let scratch = Scratch::near(&request.target.path).unwrap();
            let top = scratch.open().unwrap();
            let root = scratch.open().unwrap();
            let bytes = tar.finish();
            let mut input = bytes.as_slice();
            let mut archive = Archive::new(decompress(&mut input)?);
            let unpacked = Extractor::new(root, request.ownership, request.mode, &|| false)
                .unpack(&mut archive)?;
            place(&top, &unpacked, &request, &|| false)
        };
        copied().map_err(|error: Error| error.to_string())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| format!("{name}: {e}"))
    }

    fn owner(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.path(name)).unwrap().uid()
    }
}

fn folder() -> Tar {
    Tar::default()
        .directory("folder", 0o750)
        .file("folder/a.txt", "a")
        .file("folder/sub/b.txt", "b")
        .symlink("folder/link", "a.txt")
}

#[test]
fn a_file_goes_to_the_exact_path_with_its_parents() {
    let sandbox = Sandbox::new();
    let file = || Tar::default().file("dir/f.txt", "x");
    sandbox
        .copy(file(), "dir/f.txt", "new/deep/name", "owner=7")
        .unwrap();
    assert_eq!(sandbox.read("new/deep/name"), "x");
    assert_eq!(
        (sandbox.owner("new/deep/name"), sandbox.owner("new")),
        (7, 0)
    );
    sandbox
        .copy(file(), "./dir/f.txt", "new/into/", "")
        .unwrap();
    assert_eq!(sandbox.read("new/into/f.txt"), "x");
    sandbox.copy(file(), "dir/f.txt", ".", "").unwrap();
    assert_eq!(sandbox.read("f.txt"), "x");
}

#[test]
fn a_file_goes_into_a_directory_that_is_there_and_replaces_a_file() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("there")).unwrap();
    symlink("there", sandbox.path("link")).unwrap();
    fs::write(sandbox.path("there/f"), "old").unwrap();
    sandbox
        .copy(Tar::default().file("f", "new"), "f", "link", "")
        .unwrap();
    assert_eq!(sandbox.read("there/f"), "new");
    symlink("/nowhere", sandbox.path("dangling")).unwrap();
    sandbox
        .copy(Tar::default().file("f", "x"), "f", "dangling", "")
        .unwrap();
    assert!(
        fs::symlink_metadata(sandbox.path("dangling"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn links_stay_links_even_when_they_lead_nowhere() {
    let sandbox = Sandbox::new();
    let tar = Tar::default().symlink("l", "not/there");
    sandbox.copy(tar, "l", "target", "owner=7").unwrap();
    assert_eq!(
        fs::read_link(sandbox.path("target")).unwrap(),
        Path::new("not/there")
    );
    assert_eq!(sandbox.owner("target"), 7);
}

#[test]
fn a_directorys_content_is_merged_into_the_target() {
    let sandbox = Sandbox::new();
    sandbox
        .copy(folder(), "folder", "app/here", "owner=7")
        .unwrap();
    assert_eq!(
        (
            sandbox.read("app/here/a.txt"),
            sandbox.read("app/here/sub/b.txt")
        ),
        ("a".into(), "b".into())
    );
    assert_eq!(
        fs::read_link(sandbox.path("app/here/link")).unwrap(),
        Path::new("a.txt")
    );
    assert_eq!((sandbox.owner("app"), sandbox.owner("app/here")), (0, 7));
    let mode = fs::metadata(sandbox.path("app/here")).unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o750);
}

#[test]
fn merging_keeps_what_is_there_and_follows_links_to_directories() {
    let sandbox = Sandbox::new();
    for name in ["app", "real"] {
        fs::create_dir(sandbox.path(name)).unwrap();
        fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(0o701)).unwrap();
    }
    fs::write(sandbox.path("app/kept"), "kept").unwrap();
    fs::write(sandbox.path("app/a.txt"), "old").unwrap();
    symlink("../real", sandbox.path("app/sub")).unwrap();
    sandbox
        .copy(folder(), "folder/", "app", "owner=7&mode=700")
        .unwrap();
    assert_eq!(
        (sandbox.read("app/kept"), sandbox.read("app/a.txt")),
        ("kept".into(), "a".into())
    );
    assert_eq!(sandbox.read("real/b.txt"), "b");
    for name in ["app", "real"] {
        let found = fs::metadata(sandbox.path(name)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o701, 0), "{name}");
    }
}

#[test]
fn what_stands_before_a_glob_is_stripped() {
    let sandbox = Sandbox::new();
    let tar = Tar::default()
        .file("folder/a.txt", "a")
        .file("folder/x/b.txt", "b");
    sandbox.copy(tar, "folder/**/*.txt", "out", "").unwrap();
    assert_eq!(
        (sandbox.read("out/a.txt"), sandbox.read("out/x/b.txt")),
        ("a".into(), "b".into())
    );
    sandbox
        .copy(Tar::default().file("one.txt", "1"), "*.txt", "glob", "")
        .unwrap();
    assert_eq!(sandbox.read("glob/one.txt"), "1");
}

#[test]
fn a_name_that_looks_like_a_glob_is_found_first() {
    let sandbox = Sandbox::new();
    let tar = Tar::default()
        .file("pages/[id].tsx", "x")
        .file("pages/other", "y");
    sandbox.copy(tar, "pages/[id].tsx", "page.tsx", "").unwrap();
    assert_eq!(sandbox.read("page.tsx"), "x");
}

#[test]
fn everything_is_copied_with_a_dot() {
    let sandbox = Sandbox::new();
    sandbox.copy(folder(), ".", ".", "").unwrap();
    assert_eq!(sandbox.read("folder/a.txt"), "a");
}

#[test]
fn an_archive_that_says_itself_what_it_is_needs_no_source() {
    let sandbox = Sandbox::new();
    sandbox
        .copy(Tar::default().file("tool", "t"), "", "bin/tool2", "")
        .unwrap();
    assert_eq!(sandbox.read("bin/tool2"), "t");
    let one = Tar::default().directory("./", 0o711).file("./only", "o");
    sandbox.copy(one, "", "made", "keep_owners=true").unwrap();
    assert_eq!(
        (sandbox.read("made/only"), sandbox.owner("made")),
        ("o".into(), 1234)
    );
    let empty = Tar::default().directory("./", 0o711);
    sandbox.copy(empty, "", "empty", "").unwrap();
    assert!(sandbox.path("empty").is_dir());
}

#[test]
fn a_mode_is_for_everything_copied_but_not_for_the_target() {
    let sandbox = Sandbox::new();
    sandbox
        .copy(folder(), "folder", "app", "mode=0600")
        .unwrap();
    let mode = |name: &str| fs::metadata(sandbox.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("app/a.txt"), mode("app/sub"), mode("app")),
        (0o600, 0o600, 0o755)
    );
}

#[test]
fn a_missing_source_says_so() {
    let sandbox = Sandbox::new();
    for (tar, src) in [
        (folder(), "other"),
        (folder(), "folder/none/*"),
        (folder(), "folder/a.txt/*"),
        (folder(), "folder/link/x"),
        (Tar::default(), "."),
        (Tar::default(), "*"),
    ] {
        let error = sandbox.copy(tar, src, "x", "").unwrap_err();
        assert!(
            error.starts_with("failed to move files in sandbox: source"),
            "{error}"
        );
        assert!(!sandbox.path("x").exists());
    }
}

#[test]
fn files_and_directories_do_not_replace_each_other() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("d/a.txt")).unwrap();
    fs::write(sandbox.path("file"), "").unwrap();
    symlink("/nowhere", sandbox.path("dangling")).unwrap();
    for (src, dest) in [("folder", "d"), ("folder", "file"), ("folder", "dangling")] {
        let error = sandbox.copy(folder(), src, dest, "").unwrap_err();
        assert!(
            error.starts_with("failed to move files in sandbox"),
            "{error}"
        );
    }
    assert!(sandbox.path("d/a.txt").is_dir());
}

#[test]
fn other_file_systems_are_copied_to() {
    // /dev/shm is one of its own on every Linux; anywhere else the test would show nothing.
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let sandbox = Sandbox::new();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(device(other.path()), device(sandbox.root.path()));
    fs::create_dir(sandbox.path("app")).unwrap();
    symlink(other.path(), sandbox.path("app/folder")).unwrap();
    fs::write(other.path().join("a.txt"), "old").unwrap();
    let tar = folder().fifo("folder/pipe").directory("folder/sub", 0o711);
    sandbox.copy(tar, ".", "app", "owner=7").unwrap();
    let there = |name: &str| other.path().join(name);
    assert_eq!(fs::read_to_string(there("a.txt")).unwrap(), "a");
    assert_eq!(fs::read_to_string(there("sub/b.txt")).unwrap(), "b");
    assert_eq!(fs::read_link(there("link")).unwrap(), Path::new("a.txt"));
    for name in ["a.txt", "sub", "link", "pipe"] {
        let found = fs::symlink_metadata(there(name)).unwrap();
        assert_eq!(found.uid(), 7, "{name}");
    }
    let sub = fs::metadata(there("sub")).unwrap();
    assert_eq!(sub.mode() & 0o7777, 0o711);
    assert_eq!(fs::metadata(there("a.txt")).unwrap().mtime(), 1_000_000_000);
}
