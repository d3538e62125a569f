//! What holds of whatever clients write as a path.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => select(vec!["a", "b", "..", ".", "", "\0", "...", "ö"]).prop_map(str::to_owned),
        1 => ".{0,6}",
    ];
    prop_oneof![
        6 => vec(part, 0..8).prop_map(|parts| parts.join("/")),
        1 => "(a/){250,260}",
        1 => "[a-z]{250,260}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_path_is_below_the_root_and_clean_or_refused(text in text()) {
        match CleanPath::parse(&text) {
            Ok(path) => {
                for part in &path.parts {
                    prop_assert!(!matches!(part.as_str(), "" | "." | ".."));
                    prop_assert!(!part.contains(['/', '\0']) && part.len() <= MAX_NAME);
                }
                prop_assert!(path.parts.len() <= MAX_PARTS);
                prop_assert!(!path.relative().starts_with('/'));
                prop_assert_eq!(&CleanPath::parse(&path.absolute()).unwrap(), &path);
                prop_assert_eq!(&CleanPath::parse(&path.relative()).unwrap(), &path);
                prop_assert_eq!(path.parents_and_self().last().filter(|last| *last != path), None);
            }
            Err(error) => prop_assert!(matches!(error, Error::Path(_)), "{error:?}"),
        }
    }
}
