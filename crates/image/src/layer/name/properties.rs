//! What holds of whatever an archive calls its entries.

use std::path::Component;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn raw() -> impl Strategy<Value = Vec<u8>> {
    let part = select(vec!["a", "b", "..", ".", "", "\0", ".wh.a", "ö"]);
    prop_oneof![
        vec(part, 0..260).prop_map(|parts| parts.join("/").into_bytes()),
        vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_name_is_below_the_root_and_clean_or_refused(raw in raw()) {
        match Name::parse(&raw) {
            Ok(name) => {
                let path = name.path();
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(path.components().count() <= MAX_DEPTH);
                let bytes = path.as_os_str().as_bytes();
                prop_assert!(!bytes.contains(&0) && bytes.len() <= raw.len());
                prop_assert_eq!(&Name::parse(bytes).unwrap(), &name);
                if let Some((folder, file)) = name.split() {
                    prop_assert_eq!(folder.join(file), path);
                }
            }
            Err(error) => {
                let typed = matches!(error, LayerError::Escape { .. } | LayerError::Entry { .. });
                prop_assert!(typed, "{error:?}");
                prop_assert!(error.to_string().chars().count() < 2000);
            }
        }
    }
}
