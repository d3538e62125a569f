//! Whatever an archive says, nothing changes outside the directory that it is unpacked into.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use proptest::{collection::vec, prelude::*, sample::select};
use rustix::process::{getegid, geteuid};

use super::*;
use crate::transfer::{archive::decompress, sample::Tar};

#[derive(Debug, Clone)]
enum Step {
    File(String),
    Directory(String),
    Symlink(String, String),
    HardLink(String, String),
    Fifo(String),
}

/// `OUTSIDE` stands for the path of a directory that is not the archive's.
const OUTSIDE: &str = "OUTSIDE";

fn name() -> impl Strategy<Value = String> {
    let part =
        prop_oneof![6 => select(vec!["a", "b", "c"]), 1 => select(vec!["..", ".", "", "kept"])];
    let parts = vec(part, 1..5).prop_map(|parts| parts.join("/"));
    prop_oneof![6 => parts.clone(), 1 => parts.prop_map(|path| format!("{OUTSIDE}/{path}"))]
}

fn target() -> impl Strategy<Value = String> {
    let ways_out = select(vec![
        OUTSIDE,
        "OUTSIDE/kept",
        "..",
        "../outside",
        "../outside/kept",
        "../../outside",
        "/",
        ".",
    ]);
    prop_oneof![ways_out.prop_map(str::to_owned), name()]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => name().prop_map(Step::File),
        2 => name().prop_map(Step::Directory),
        3 => (name(), target()).prop_map(|(name, target)| Step::Symlink(name, target)),
        2 => (name(), target()).prop_map(|(name, target)| Step::HardLink(name, target)),
        1 => name().prop_map(Step::Fifo),
    ]
}

fn tar(steps: &[Step], outside: &Path) -> Vec<u8> {
    let real = |text: &String| text.replace(OUTSIDE, outside.to_str().unwrap());
    let mut tar = Tar::default();
    for step in steps {
        tar = match step {
            Step::File(name) => tar.file(&real(name), "new"),
            Step::Directory(name) => tar.directory(&real(name), 0o700),
            Step::Symlink(name, target) => tar.symlink(&real(name), &real(target)),
            Step::HardLink(name, target) => tar.hard_link(&real(name), &real(target)),
            Step::Fifo(name) => tar.fifo(&real(name)),
        };
    }
    tar.finish()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 2,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_outside_is_touched(steps in vec(step(), 1..8)) {
        let all = tempfile::tempdir().unwrap();
        let (to, outside) = (all.path().join("to"), all.path().join("outside"));
        fs::create_dir(&to).unwrap();
        fs::create_dir(&outside).unwrap();
        let kept = outside.join("kept");
        fs::write(&kept, "kept").unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o604)).unwrap();
        let state = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.mode(), found.uid(), found.nlink(), found.ino(), found.mtime_nsec())
        };
        let before = [state(all.path()), state(&outside), state(&kept)];

        let bytes = tar(&steps, &outside);
        let mut input = bytes.as_slice();
        let mut archive = Archive::new(decompress(&mut input).unwrap());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = openat(rustix::fs::CWD, &to, flags, Mode::empty()).unwrap();
        let mine = Ownership::All { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let unpacked = Extractor::new(root, mine, None, &|| false).unpack(&mut archive);

        prop_assert_eq!([state(all.path()), state(&outside), state(&kept)], before);
        prop_assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        let names = |path: &Path| fs::read_dir(path).unwrap().count();
        prop_assert_eq!((names(all.path()), names(&outside)), (2, 1));
        let refusal = unpacked.err();
        let typed = matches!(refusal, None | Some(Error::Archive(_) | Error::Extract { .. }));
        prop_assert!(typed, "{refusal:?}");
    }

    #[test]
    fn the_parts_of_a_name_never_lead_up(path in vec(any::<u8>(), 0..40), dots in name()) {
        for path in [path, dots.into_bytes()] {
            if let Ok(parts) = components(&path) {
                for part in parts {
                    prop_assert!(!part.is_empty() && part != b"." && part != b"..");
                    prop_assert!(!part.contains(&b'/') && !part.contains(&0));
                }
            }
        }
    }
}
