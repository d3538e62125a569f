use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
};

use rustix::fs::{XattrFlags, setxattr};

use super::*;
use crate::transfer::{
    archive::{Archive, Entry, Kind},
    extract::Extractor,
    owner::Ownership,
};

fn packed(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    Packer::new(&mut out)
        .pack(Top::open(path).unwrap())
        .unwrap();
    out
}

fn listed(bytes: &[u8]) -> Vec<Entry> {
    let mut archive = Archive::new(bytes);
    let mut entries = Vec::new();
    while let Some(entry) = archive.next().unwrap() {
        entries.push(entry);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    let from = tempfile::tempdir().unwrap();
    let at = |name: &str| from.path().join(name);
    let long = "n".repeat(200);
    fs::create_dir_all(at("d/e")).unwrap();
    fs::write(at("d/f"), vec![7; 100_000]).unwrap();
    fs::write(at(&format!("d/e/{long}")), "long").unwrap();
    fs::hard_link(at("d/f"), at("d/again")).unwrap();
    symlink(format!("/{long}"), at("link")).unwrap();
    fs::set_permissions(at("d/e"), fs::Permissions::from_mode(0o4711)).unwrap();
    std::os::unix::fs::chown(at("d/f"), Some(100_000), Some(3_000_000)).unwrap();
    let value = b"a\nb\0c";
    setxattr(at("d/f"), "user.k", value, XattrFlags::empty()).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();

    let bytes = packed(from.path());
    let to = tempfile::tempdir().unwrap();
    let root = File::open(to.path()).unwrap().into();
    Extractor::new(root, Ownership::Kept, None, &|| false)
        .unpack(&mut Archive::new(bytes.as_slice()))
        .unwrap();

    let there = |name: &str| to.path().join(name);
    let found = fs::metadata(there("d/f")).unwrap();
    assert_eq!(
        (found.uid(), found.gid(), found.nlink()),
        (100_000, 3_000_000, 2)
    );
    assert_eq!(fs::read(there("d/again")).unwrap(), vec![7; 100_000]);
    assert_eq!(
        fs::read_to_string(there(&format!("d/e/{long}"))).unwrap(),
        "long"
    );
    assert_eq!(
        fs::read_link(there("link")).unwrap(),
        fs::read_link(at("link")).unwrap()
    );
    assert_eq!(fs::metadata(there("d/e")).unwrap().mode() & 0o7777, 0o4711);
    let file = File::open(there("d/f")).unwrap();
    assert_eq!(
        attributes::read(&file),
        [(b"user.k".to_vec(), value.to_vec())]
    );
    assert!(!there("socket").exists());
}

#[test]
fn a_directory_is_named_by_a_dot_and_a_file_by_its_name() {
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("f"), "x").unwrap();
    symlink("f", from.path().join("l")).unwrap();
    let names = |path: &Path| -> Vec<String> {
        let entries = listed(&packed(path));
        entries
            .iter()
            .map(|e| String::from_utf8_lossy(&e.path).into_owned())
            .collect()
    };
    assert_eq!(names(from.path()), ["./", "./f", "./l"]);
    assert_eq!(names(&from.path().join("f")), ["f"]);
    // A link at the top is followed.
    assert_eq!(names(&from.path().join("l")), ["l"]);
    assert_eq!(listed(&packed(&from.path().join("l")))[0].kind, Kind::File);
}

#[test]
fn other_programs_can_read_it() {
    let from = tempfile::tempdir().unwrap();
    let long = "n".repeat(150);
    fs::write(from.path().join(&long), "x".repeat(1000)).unwrap();
    let bytes = packed(from.path());
    let mut archive = tar::Archive::new(bytes.as_slice());
    let names: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().into_owned())
        .collect();
    assert_eq!(names, [Path::new("./"), &Path::new("./").join(long)]);
}

#[test]
fn what_the_kernel_pretends_to_have_is_left_out() {
    assert!(is_pretended(File::open("/proc").unwrap()));
    assert!(!is_pretended(File::open("/usr").unwrap()));
}

#[test]
fn devices_and_missing_files_cannot_be_packed() {
    let kind = |path: &str| Top::open(Path::new(path)).err().unwrap().kind();
    assert_eq!(kind("/dev/null"), io::ErrorKind::InvalidInput);
    assert_eq!(kind("/not/there"), io::ErrorKind::NotFound);
}

#[test]
fn a_file_that_shrinks_keeps_the_archive_whole() {
    let from = tempfile::tempdir().unwrap();
    let path = from.path().join("f");
    fs::write(&path, "12345").unwrap();
    let file: OwnedFd = File::open(&path).unwrap().into();
    let found = fstat(&file).unwrap();
    fs::write(&path, "12").unwrap();
    let mut out = Vec::new();
    Packer::new(&mut out).file(file, &found, b"f").unwrap();
    assert_eq!(out.len(), 1024);
    assert_eq!(&out[512..517], b"12\0\0\0");
}
