use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, symlink},
    path::Path,
};

use super::*;
use crate::transfer::{archive::decompress, sample::Tar, scratch::Scratch};

const MINE: Ownership = Ownership::All { uid: 7, gid: 8 };

fn unpack(tar: Tar, to: &Path, ownership: Ownership, mode: Option<u32>) -> Result<Unpacked, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let root = openat(rustix::fs::CWD, to, flags, Mode::empty()).unwrap();
    let bytes = tar.finish();
    let mut input = bytes.as_slice();
    let mut archive = Archive::new(decompress(&mut input)?);
    Extractor::new(root, ownership, mode, &|| false).unpack(&mut archive)
}

#[test]
fn every_kind_of_entry_arrives_with_its_owner_mode_and_time() {
    let to = tempfile::tempdir().unwrap();
    let tar = Tar::default()
        .directory("./", 0o710)
        .directory("d/", 0o750)
        .file("d/f", "content")
        .symlink("d/l", "/nowhere")
        .hard_link("h", "./d/f")
        .fifo("p")
        .file("implied/below/f", "");
    let unpacked = unpack(tar, to.path(), MINE, None).unwrap();
    let top = Metadata {
        uid: 7,
        gid: 8,
        mode: 0o710,
    };
    assert_eq!((unpacked.entries, unpacked.top), (7, Some(top)));
    let at = |name: &str| fs::symlink_metadata(to.path().join(name)).unwrap();
    for name in ["d", "d/f", "d/l", "h", "p", "implied", "implied/below/f"] {
        assert_eq!((at(name).uid(), at(name).gid()), (7, 8), "{name}");
    }
    assert_eq!(at("d").mode() & 0o7777, 0o750);
    assert_eq!(at("d/f").mode() & 0o7777, 0o640);
    assert_eq!(at("implied/below").mode() & 0o7777, 0o755);
    assert_eq!(
        (at("d/f").ino(), at("d/f").mtime()),
        (at("h").ino(), 1_000_000_000)
    );
    assert!(at("p").file_type().is_fifo());
    assert_eq!(
        fs::read_link(to.path().join("d/l")).unwrap(),
        Path::new("/nowhere")
    );
}

#[test]
fn owners_can_be_kept_and_one_mode_can_be_for_all() {
    let to = tempfile::tempdir().unwrap();
    let tar = Tar::default()
        .directory("d", 0o700)
        .file("d/f", "")
        .file("i/f", "");
    unpack(tar, to.path(), Ownership::Kept, Some(0o2755)).unwrap();
    for name in ["d", "d/f", "i", "i/f"] {
        let found = fs::metadata(to.path().join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, 0o2755, "{name}");
    }
    let found = fs::metadata(to.path().join("d/f")).unwrap();
    assert_eq!((found.uid(), found.gid()), (1234, 4321));
}

#[test]
fn the_last_of_the_same_name_counts_and_a_link_is_not_written_through() {
    let root = tempfile::tempdir().unwrap();
    let (to, outside) = (root.path().join("to"), root.path().join("outside"));
    fs::create_dir(&to).unwrap();
    fs::write(&outside, "kept").unwrap();
    let tar = Tar::default()
        .file("f", "one")
        .file("f", "two")
        .symlink("l", outside.to_str().unwrap())
        .file("l", "three");
    unpack(tar, &to, MINE, None).unwrap();
    assert_eq!(fs::read_to_string(to.join("f")).unwrap(), "two");
    assert_eq!(fs::read_to_string(to.join("l")).unwrap(), "three");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
}

#[test]
fn no_archive_writes_or_links_outside() {
    let root = tempfile::tempdir().unwrap();
    let (to, outside) = (root.path().join("to"), root.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "kept").unwrap();
    let out = outside.to_str().unwrap();
    let hostile = [
        Tar::default().file("../outside/new", "x"),
        Tar::default().file("a/../../outside/new", "x"),
        Tar::default().symlink("l", out).file("l/new", "x"),
        Tar::default().symlink("l", "../outside").file("l/new", "x"),
        Tar::default()
            .symlink("l", "../outside")
            .directory("l/d", 0o777),
        Tar::default().symlink("l", out).directory("l", 0o777),
        Tar::default()
            .symlink("a", ".")
            .symlink("a/l", out)
            .file("a/l/new", "x"),
        Tar::default().symlink("l", out).hard_link("h", "l/secret"),
        Tar::default().hard_link("h", "../outside/secret"),
        Tar::default().hard_link("h", &format!("{out}/secret")),
        Tar::default().symlink("l", out).symlink("l/new", "x"),
        Tar::default().symlink("l", out).fifo("l/new"),
        Tar::default().directory("..", 0o777),
        Tar::default().file("", "x"),
        Tar::default().file("f", "x").file("f/below", "x"),
        Tar::default().directory("d", 0o755).file("d", "x"),
        Tar::default().symlink("empty", ""),
    ];
    for (number, tar) in hostile.into_iter().enumerate() {
        fs::create_dir(&to).unwrap();
        let unpacked = unpack(tar, &to, MINE, None);
        assert!(unpacked.is_err(), "{number}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{number}");
        let secret = fs::metadata(outside.join("secret")).unwrap();
        assert_eq!((secret.uid(), secret.nlink()), (0, 1), "{number}");
        assert_eq!(fs::metadata(&outside).unwrap().uid(), 0, "{number}");
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn names_from_the_top_of_the_file_system_stay_below() {
    let to = tempfile::tempdir().unwrap();
    unpack(Tar::default().file("/etc/x", "1"), to.path(), MINE, None).unwrap();
    assert_eq!(fs::read_to_string(to.path().join("etc/x")).unwrap(), "1");
}

#[test]
fn too_deep_is_refused() {
    let deep = vec![b'/'; 2 * MAX_DEPTH];
    assert_eq!(components(&deep).unwrap().len(), 0);
    let deep = b"d/".repeat(MAX_DEPTH + 1);
    assert!(components(&deep).is_err());
}

#[test]
fn whoever_is_gone_stops_it() {
    let to = tempfile::tempdir().unwrap();
    let root = open_directory(rustix::fs::CWD, to.path().as_os_str().as_bytes()).unwrap();
    let bytes = Tar::default().file("f", "x").finish();
    let unpacked =
        Extractor::new(root, MINE, None, &|| true).unpack(&mut Archive::new(bytes.as_slice()));
    assert!(matches!(unpacked, Err(Error::Abandoned)));
}

#[test]
fn the_scratch_is_next_to_the_target_and_goes_with_all_that_is_in_it() {
    let root = tempfile::tempdir().unwrap();
    symlink("/nowhere", root.path().join("dangling")).unwrap();
    for target in ["a/b/c", "dangling", "", "dangling/x"] {
        let scratch = Scratch::near(&root.path().join(target)).unwrap();
        scratch.open().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "{target}");
        let name = fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| !path.ends_with("dangling"))
            .unwrap();
        fs::create_dir_all(name.join("x/y/z")).unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "{target}");
    }
}
