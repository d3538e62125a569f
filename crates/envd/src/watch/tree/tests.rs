use std::{fs, os::unix::fs::chown};

use super::*;

fn events(tree: &mut Tree) -> Vec<(String, i32)> {
    tree.read()
}

fn event(name: &str, kind: i32) -> (String, i32) {
    (name.to_owned(), kind)
}

#[test]
fn a_small_upload_is_create_chmod_write() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = Tree::new(root.path().into(), false).unwrap();
    let file = root.path().join("f");
    let handle = fs::File::create(&file).unwrap();
    chown(&file, None, Some(rustix::process::getgid().as_raw())).unwrap();
    io::Write::write_all(&mut &handle, b"x").unwrap();
    assert_eq!(
        events(&mut tree),
        [event("f", CREATE), event("f", CHMOD), event("f", WRITE)]
    );
    assert_eq!(events(&mut tree), []);
}

#[test]
fn moving_inside_is_rename_then_create() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "").unwrap();
    let mut tree = Tree::new(root.path().into(), false).unwrap();
    fs::rename(root.path().join("a"), root.path().join("b")).unwrap();
    fs::remove_file(root.path().join("b")).unwrap();
    assert_eq!(
        events(&mut tree),
        [event("a", RENAME), event("b", CREATE), event("b", REMOVE)]
    );
}

#[test]
fn files_written_right_after_their_directory_are_reported_once() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = Tree::new(root.path().into(), true).unwrap();
    fs::create_dir_all(root.path().join("d/e")).unwrap();
    fs::write(root.path().join("d/e/f"), "content").unwrap();
    let first = events(&mut tree);
    for expected in [
        event("d", CREATE),
        event("d/e", CREATE),
        event("d/e/f", CREATE),
        event("d/e/f", WRITE),
    ] {
        assert_eq!(
            first.iter().filter(|e| **e == expected).count(),
            1,
            "{expected:?} in {first:?}"
        );
    }
    fs::write(root.path().join("d/e/f"), "more").unwrap();
    assert!(events(&mut tree).contains(&event("d/e/f", WRITE)));
}

#[test]
fn without_recursion_only_the_directory_itself_is_watched() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    let mut tree = Tree::new(root.path().into(), false).unwrap();
    fs::write(root.path().join("d/f"), "x").unwrap();
    assert_eq!(events(&mut tree), []);
}

#[test]
fn a_directory_that_moved_out_is_no_longer_watched() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(root.path().join("d/e")).unwrap();
    let mut tree = Tree::new(root.path().into(), true).unwrap();
    fs::rename(root.path().join("d"), elsewhere.path().join("d")).unwrap();
    assert_eq!(events(&mut tree), [event("d", RENAME)]);
    fs::write(elsewhere.path().join("d/e/f"), "x").unwrap();
    assert_eq!(events(&mut tree), []);
}

#[test]
fn a_large_tree_that_moves_in_is_watched_a_part_at_a_time() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wide = elsewhere.path().join("d");
    let directories = MAX_LOOKED_AT / OPENING;
    for n in 0..directories {
        fs::create_dir_all(wide.join(format!("{n}/e"))).unwrap();
    }
    let mut tree = Tree::new(root.path().into(), true).unwrap();
    fs::rename(&wide, root.path().join("d")).unwrap();
    assert_eq!(events(&mut tree), [event("d", CREATE)]);
    assert!(tree.has_more(), "it was too much for one read");
    let mut reads = 0;
    while tree.has_more() {
        assert_eq!(events(&mut tree), []);
        reads += 1;
        assert!(reads < 10_000);
    }
    for n in [0, directories - 1] {
        let name = format!("d/{n}/e/f");
        fs::write(root.path().join(&name), "").unwrap();
        assert_eq!(events(&mut tree), [event(&name, CREATE)]);
    }
}

#[test]
fn paths_too_long_for_one_watch_are_refused_and_forgotten_ones_make_room() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = Tree::new(root.path().into(), true).unwrap();
    let mut deep = PathBuf::new();
    for _ in 0..15 {
        deep.push("n".repeat(250));
    }
    fs::create_dir_all(root.path().join(&deep)).unwrap();
    tree.text = MAX_TEXT - deep.as_os_str().len();
    let full = tree.text;
    tree.watch(&deep).unwrap();
    let refused = tree.watch(deep.parent().unwrap()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    tree.unwatch(&deep);
    assert_eq!(tree.text, full);
    tree.watch(deep.parent().unwrap()).unwrap();
}
