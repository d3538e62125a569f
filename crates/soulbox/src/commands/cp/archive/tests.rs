use std::{fs, os::unix::fs::PermissionsExt};

use tar::Header;

use super::*;

/// An archive as hostile code inside a sandbox would write it: names unchecked.
#[derive(Default)]
struct Hostile(Vec<u8>);

impl Hostile {
    fn entry(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str) -> Self {
        self.entry(EntryType::Regular, name, "", b"owned")
    }

    fn symlink(self, name: &str, to: &str) -> Self {
        self.entry(EntryType::Symlink, name, to, b"")
    }

    fn unpack(self, folder: &Path) -> Result<()> {
        unpack_into(folder, self.0.as_slice())
    }
}

#[tokio::test]
async fn a_folder_survives_the_way_there_and_back() {
    let from = tempfile::tempdir().unwrap();
    fs::create_dir_all(from.path().join("a/empty")).unwrap();
    fs::write(from.path().join("a/run"), vec![7; 200_000]).unwrap();
    fs::set_permissions(from.path().join("a/run"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("run", from.path().join("a/link")).unwrap();
    let to = tempfile::tempdir().unwrap();
    let target = to.path().join("new");

    unpack(target.clone(), pack(from.path().to_owned()))
        .await
        .unwrap();

    assert_eq!(fs::read(target.join("a/run")).unwrap(), vec![7; 200_000]);
    let mode = fs::metadata(target.join("a/run"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert!(target.join("a/empty").is_dir());
    assert_eq!(
        fs::read_link(target.join("a/link")).unwrap(),
        Path::new("run")
    );
}

#[tokio::test]
async fn a_source_that_fails_fails_the_copy() {
    let to = tempfile::tempdir().unwrap();
    let missing = to.path().join("not there");
    assert!(unpack(to.path().join("new"), pack(missing)).await.is_err());
}

#[test]
fn names_with_dots_stay_outside() {
    let to = tempfile::tempdir().unwrap();
    let folder = to.path().join("in");
    Hostile::default().file("../out").unpack(&folder).unwrap();
    assert!(!to.path().join("out").exists());
}

#[test]
fn absolute_names_land_inside() {
    let to = tempfile::tempdir().unwrap();
    let outside = to.path().join("out");
    let folder = to.path().join("in");
    Hostile::default()
        .file(outside.to_str().unwrap())
        .unpack(&folder)
        .unwrap();
    assert!(!outside.exists());
}

#[test]
fn a_link_is_no_way_out() {
    let to = tempfile::tempdir().unwrap();
    let outside = to.path().join("out");
    fs::create_dir(&outside).unwrap();
    let folder = to.path().join("in");
    let result = Hostile::default()
        .symlink("way", outside.to_str().unwrap())
        .file("way/owned")
        .unpack(&folder);
    assert!(result.is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_file_replaces_a_link_instead_of_writing_through_it() {
    let to = tempfile::tempdir().unwrap();
    let precious = to.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    let folder = to.path().join("in");
    Hostile::default()
        .symlink("x", precious.to_str().unwrap())
        .file("x")
        .unpack(&folder)
        .unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
}

#[test]
fn a_hard_link_to_a_file_outside_is_refused() {
    let to = tempfile::tempdir().unwrap();
    let precious = to.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    let folder = to.path().join("in");
    let link = Hostile::default().entry(EntryType::Link, "x", "../precious", b"");
    assert!(link.unpack(&folder).is_err());
    assert!(!folder.join("x").exists());
}

#[test]
fn devices_and_set_user_id_bits_are_left_out() {
    let to = tempfile::tempdir().unwrap();
    let folder = to.path().join("in");
    Hostile::default()
        .entry(EntryType::Char, "device", "", b"")
        .entry(EntryType::Fifo, "fifo", "", b"")
        .file("program")
        .unpack(&folder)
        .unwrap();
    assert!(!folder.join("device").exists() && !folder.join("fifo").exists());
    let mode = fs::metadata(folder.join("program"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7000, 0);
}
