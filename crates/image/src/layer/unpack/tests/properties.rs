//! Whatever a layer says, nothing changes outside the directory that it is unpacked into.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => select(vec!["a", "b", "c"]),
        1 => select(vec!["..", ".", "", ".wh.a", ".wh..wh..opq", ".wh...", ".wh.", ".wh..wh.x"]),
    ];
    vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn target() -> impl Strategy<Value = String> {
    let ways_out = select(vec!["..", "../..", "/", ".", "../../kept", "/etc/passwd"]);
    prop_oneof![ways_out.prop_map(str::to_owned), name()]
}

/// Kind, name, where a link leads, owner.
type Step = (u8, String, String, u64);

fn step() -> impl Strategy<Value = Step> {
    let kind = select(b"0001122355567xLZ".to_vec());
    let owner = prop_oneof![8 => 0..10_u64, 1 => any::<u64>()];
    (kind, name(), target(), owner)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 2,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_outside_is_touched(steps in vec(step(), 1..8)) {
        let layer = Layer::new();
        let kept = layer.around.path().join("a/kept");
        fs::write(&kept, "kept").unwrap();
        let state = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.mode(), found.uid(), found.nlink(), found.ino(), found.mtime_nsec())
        };
        let around = layer.around.path();
        let watched = [around.to_owned(), around.join("a"), around.join("a/b"), kept.clone()];
        let before = watched.each_ref().map(|path| state(path));
        let maker = steps.iter().fold(TarBuilder::default(), |maker, (kind, name, target, owner)| {
            let data: &[u8] = if matches!(kind, b'0' | b'7') { b"new" } else { b"" };
            maker.raw(*kind, name.as_bytes(), target.as_bytes(), data, |header| {
                header.set_uid(*owner);
            })
        });
        let unpacked = layer.unpack(&maker.end());

        prop_assert_eq!(watched.each_ref().map(|path| state(path)), before);
        prop_assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        let names = |path: &Path| fs::read_dir(path).unwrap().count();
        prop_assert_eq!(watched[..3].iter().map(|path| names(path)).collect::<Vec<_>>(), [1, 2, 1]);
        if let Err(error) = unpacked {
            let typed = matches!(
                error,
                LayerError::Damaged(_)
                    | LayerError::Escape { .. }
                    | LayerError::Entry { .. }
                    | LayerError::Owner { .. }
            );
            prop_assert!(typed, "{error:?}");
        }
    }
}
