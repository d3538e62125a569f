//! Real volumes on loop devices, with what hostile sandboxes put into them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{
    io::{Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::PathBuf,
    sync::Arc,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use soulbox_volume::{Changes, Content, Error, Kind, Volumes};
use tempfile::TempDir;
use uuid::Uuid;

struct World {
    folder: TempDir,
    volumes: Arc<Volumes>,
    id: String,
}

impl Drop for World {
    fn drop(&mut self) {
        self.volumes.close();
    }
}

impl World {
    fn content(&self) -> Arc<Content> {
        self.volumes.content(&self.id).unwrap()
    }

    fn directory(&self) -> PathBuf {
        self.volumes.mount(&self.id).unwrap();
        let volumes = self.folder.path().join("volumes");
        volumes.join(&self.id).join("mnt")
    }
}

/// `None` where this machine cannot mount.
fn world() -> Option<World> {
    if !rustix::process::geteuid().is_root() || !std::fs::exists("/dev/loop-control").unwrap() {
        eprintln!("skipped: needs root and loop devices");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let volumes = Volumes::open(folder.path().join("volumes")).unwrap();
    let id = Uuid::new_v4().to_string();
    volumes.create(&id, 64).unwrap();
    Some(World {
        folder,
        volumes,
        id,
    })
}

#[test]
fn what_a_killed_server_left_mounted_is_unmounted_by_the_next_one() {
    let Some(world) = world() else { return };
    put(&world.content(), "/kept", b"kept", false).unwrap();
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&world.id)
    };
    // Nobody closes it, as after a kill -9, and the next one has no use for it.
    let next = Volumes::open(world.folder.path().join("volumes")).unwrap();
    assert!(mounted());
    next.close();
    assert!(!mounted());
    assert_eq!(
        get(&next.content(&world.id).unwrap(), "/kept").unwrap(),
        b"kept"
    );
    next.close();
    assert!(!mounted());
}

fn put(content: &Arc<Content>, path: &str, data: &[u8], force: bool) -> Result<u64, Error> {
    let writer = content.write(path, Changes::default(), force)?;
    writer
        .file()
        .unwrap()
        .write_all(data)
        .map_err(soulbox_volume::Writer::failed)?;
    writer.finish().map(|entry| entry.size)
}

fn get(content: &Content, path: &str) -> Result<Vec<u8>, Error> {
    let (mut file, _) = content.read(path)?;
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    Ok(data)
}

#[test]
fn files_come_back_with_owner_and_mode() {
    let Some(world) = world() else { return };
    let content = world.content();
    assert_eq!(put(&content, "/a.txt", b"hello", false).unwrap(), 5);
    assert_eq!(get(&content, "a.txt").unwrap(), b"hello");
    let entry = content.stat("/a.txt").unwrap();
    assert_eq!(
        (entry.name.as_str(), entry.path.as_str(), entry.kind),
        ("a.txt", "/a.txt", Kind::File)
    );
    assert_eq!((entry.mode, entry.uid, entry.gid), (0o644, 1000, 1000));
    let changed = content
        .change(
            "/a.txt",
            Changes {
                uid: Some(7),
                gid: None,
                mode: Some(0o600),
            },
        )
        .unwrap();
    assert_eq!((changed.mode, changed.uid, changed.gid), (0o600, 7, 1000));
    let refused = put(&content, "/a.txt", b"x", false);
    assert!(matches!(refused, Err(Error::Exists)));
    put(&content, "/a.txt", b"", true).unwrap();
    let replaced = content.stat("/a.txt").unwrap();
    assert_eq!((replaced.size, replaced.mode, replaced.uid), (0, 0o600, 7));
    assert!(matches!(
        put(&content, "/none/a", b"", true),
        Err(Error::NotFound)
    ));
    assert!(matches!(content.read("/none"), Err(Error::NotFound)));
    assert!(matches!(content.read("/"), Err(Error::IsADirectory)));
    assert!(matches!(
        put(&content, "/", b"", true),
        Err(Error::IsADirectory)
    ));
}

#[test]
fn directories_are_made_listed_and_removed() {
    let Some(world) = world() else { return };
    let content = world.content();
    let make = |path: &str, force| content.make_directory(path, Changes::default(), force);
    assert!(matches!(make("/a/b", false), Err(Error::NotFound)));
    assert_eq!(make("/a/b/c", true).unwrap().path, "/a/b/c");
    assert_eq!(make("/a/b/c", true).unwrap().mode, 0o755);
    assert!(matches!(make("/a", false), Err(Error::Exists)));
    assert!(matches!(make("/", false), Err(Error::Exists)));
    assert_eq!(make("/", true).unwrap().name, "/");
    put(&content, "/a/f", b"1", false).unwrap();
    assert!(matches!(make("/a/f", true), Err(Error::Exists)));
    assert!(matches!(make("/a/f/g", true), Err(Error::NotADirectory)));
    let paths = |path: &str, depth| -> Vec<String> {
        let entries = content.list(path, depth).unwrap();
        entries.into_iter().map(|entry| entry.path).collect()
    };
    assert_eq!(paths("/", 1), ["/a"]);
    assert_eq!(paths("/", 2), ["/a", "/a/b", "/a/f"]);
    assert_eq!(paths("/a", 9), ["/a/b", "/a/b/c", "/a/f"]);
    assert!(matches!(content.list("/a/f", 1), Err(Error::NotADirectory)));
    assert!(matches!(content.list("/x", 1), Err(Error::NotFound)));
    content.remove("/a").unwrap();
    assert!(matches!(content.remove("/a"), Err(Error::NotFound)));
    assert!(matches!(content.remove("/"), Err(Error::Root)));
    assert!(matches!(content.remove("/x/.."), Err(Error::Root)));
    assert!(paths("/", 9).is_empty());
}

#[test]
fn links_never_lead_out_of_the_volume() {
    let Some(world) = world() else { return };
    let (content, root) = (world.content(), world.directory());
    let outside = world.folder.path().join("secret");
    std::fs::write(&outside, "outside").unwrap();
    symlink(&outside, root.join("absolute")).unwrap();
    symlink("../../../../../../../../etc/passwd", root.join("up")).unwrap();
    symlink("/proc/self/root/etc", root.join("magic")).unwrap();
    symlink("/", root.join("top")).unwrap();
    symlink("around", root.join("around")).unwrap();
    for link in ["absolute", "up", "magic/passwd"] {
        let read = content.read(link);
        assert!(matches!(read, Err(Error::NotFound)), "{link}: {read:?}");
        let changes = Changes {
            mode: Some(0o777),
            ..Changes::default()
        };
        assert!(matches!(
            content.change(link, changes),
            Err(Error::NotFound)
        ));
    }
    assert!(matches!(content.read("around"), Err(Error::Links)));
    let entry = content.stat("absolute").unwrap();
    assert_eq!(entry.kind, Kind::Symlink);
    assert_eq!(entry.target.as_deref(), outside.to_str());

    // The root of links is the volume's.
    assert_eq!(content.list("top", 1).unwrap().len(), 5);
    content
        .make_directory("top/inside", Changes::default(), false)
        .unwrap();
    assert!(root.join("inside").is_dir());
    symlink("/etc", root.join("conf")).unwrap();
    assert!(matches!(
        put(&content, "conf/passwd", b"x", true),
        Err(Error::NotFound)
    ));
    let made = content.make_directory("conf/new", Changes::default(), true);
    assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
    assert!(!std::fs::exists("/etc/new").unwrap());

    // Writing and removing are about the link itself.
    put(&content, "absolute", b"replaced", true).unwrap();
    content.remove("up").unwrap();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "outside");
    assert!(std::fs::exists("/etc/passwd").unwrap());
}

#[test]
fn special_files_are_refused_without_waiting() {
    let Some(world) = world() else { return };
    let (content, root) = (world.content(), world.directory());
    for (name, kind) in [
        ("pipe", FileType::Fifo),
        ("device", FileType::CharacterDevice),
        ("socket", FileType::Socket),
    ] {
        let null = rustix::fs::makedev(1, 3);
        mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o666), null).unwrap();
        assert!(matches!(content.read(name), Err(Error::Special)), "{name}");
        assert!(matches!(
            put(&content, name, b"x", true),
            Err(Error::Special)
        ));
        assert_eq!(content.stat(name).unwrap().kind, Kind::Other);
        content.remove(name).unwrap();
    }
}

#[test]
fn a_deep_and_a_wide_tree_can_be_removed() {
    let Some(world) = world() else { return };
    let (content, root) = (world.content(), world.directory());
    // Deeper than any path the kernel takes.
    let mut at =
        rustix::fs::open(&root, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let name = "d".repeat(100);
    for _ in 0..200 {
        rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(
            &at,
            &name,
            rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
    }
    drop(at);
    for number in 0..300 {
        std::fs::write(root.join(&name).join(number.to_string()), "x").unwrap();
    }
    let strange = root
        .join(&name)
        .join(std::ffi::OsStr::from_bytes(b"\xff\n\\"));
    std::fs::create_dir(strange).unwrap();
    assert!(content.list("/", 10).unwrap().len() > 300);
    content.remove(&name).unwrap();
    assert!(content.list("/", 1).unwrap().is_empty());
    let staging = root.parent().unwrap().join("disk/staging");
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
}

#[test]
fn a_full_volume_says_so_and_keeps_what_was_there() {
    let Some(world) = world() else { return };
    let content = world.content();
    put(&content, "/kept", b"old", false).unwrap();
    let full = put(&content, "/kept", &vec![7; 80 << 20], true);
    assert!(matches!(full, Err(Error::NoSpace)), "{full:?}");
    assert_eq!(get(&content, "/kept").unwrap(), b"old");
    let staging = world.directory().parent().unwrap().join("disk/staging");
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
    put(&content, "/small", &vec![7; 1 << 20], false).unwrap();
}

#[test]
fn a_volume_survives_its_server_and_is_never_mounted_twice_differently() {
    let Some(world) = world() else { return };
    put(&world.content(), "/f", b"kept", false).unwrap();
    let device = std::fs::metadata(world.directory()).unwrap().dev();
    // As a sandbox would: it holds the file system while the server goes and comes.
    let held = std::fs::File::open(world.directory()).unwrap();
    world.volumes.close();
    assert!(
        !world
            .folder
            .path()
            .join("volumes")
            .join(&world.id)
            .join("disk/files")
            .exists()
    );
    let next = Volumes::open(world.folder.path().join("volumes")).unwrap();
    let content = next.content(&world.id).unwrap();
    assert_eq!(get(&content, "/f").unwrap(), b"kept");
    next.mount(&world.id).unwrap();
    let mounted = world.folder.path().join("volumes").join(&world.id);
    let again = std::fs::metadata(mounted.join("mnt")).unwrap();
    assert_eq!(again.dev(), device);
    drop((content, held));
    next.close();
}

#[test]
fn a_killed_server_leaves_a_mount_that_the_next_one_uses() {
    let Some(world) = world() else { return };
    put(&world.content(), "/f", b"kept", false).unwrap();
    let staging = world.directory().parent().unwrap().join("disk/staging");
    std::fs::create_dir_all(staging.join("left/over")).unwrap();
    let next = Volumes::open(world.folder.path().join("volumes")).unwrap();
    let content = next.content(&world.id).unwrap();
    assert_eq!(get(&content, "/f").unwrap(), b"kept");
    while std::fs::read_dir(&staging).unwrap().count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn deleting_takes_everything_and_is_idempotent() {
    let Some(world) = world() else { return };
    let content = world.content();
    put(&content, "/f", b"x", false).unwrap();
    assert!(matches!(
        world.volumes.create(&world.id, 64),
        Err(Error::Exists)
    ));
    world.volumes.delete(&world.id).unwrap();
    world.volumes.delete(&world.id).unwrap();
    assert!(matches!(
        world.volumes.content(&world.id),
        Err(Error::NoVolume(_))
    ));
    let left = std::fs::read_dir(world.folder.path().join("volumes")).unwrap();
    assert_eq!(left.count(), 0);
    for bad in ["", "..", "../x", "A0000000-0000-0000-0000-000000000000"] {
        assert!(matches!(
            world.volumes.create(bad, 64),
            Err(Error::NoVolume(_))
        ));
    }
}
