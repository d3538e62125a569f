//! What holds of whatever somebody writes as the name of an image.

use proptest::{option, prelude::*, sample::Index};

use super::*;

fn text() -> impl Strategy<Value = String> {
    let digest = "@sha256:[0-9a-f]{63,65}";
    let registry = "([a-zA-Z0-9._-]{1,8}|localhost|docker.io|\\[::1\\]?)(:[0-9+]{0,6})?";
    let parts = (
        option::of(registry),
        "[a-zA-Z0-9._/-]{0,12}",
        option::of(":[a-zA-Z0-9._-]{0,8}"),
        option::weighted(0.2, digest),
    );
    let likely = parts.prop_map(|(registry, name, tag, digest)| {
        let registry = registry.map_or_else(String::new, |registry| format!("{registry}/"));
        [
            registry,
            name,
            tag.unwrap_or_default(),
            digest.unwrap_or_default(),
        ]
        .concat()
    });
    prop_oneof![
        8 => likely,
        1 => ".{0,30}",
        1 => "[a-z]{240,260}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_reference_is_one_or_refused_with_a_short_reason(text in text()) {
        match Reference::parse(&text) {
            Ok(reference) => {
                prop_assert!(is_authority(&reference.registry), "{reference:?}");
                prop_assert_eq!(&reference.registry.to_ascii_lowercase(), &reference.registry);
                let plain = |byte: u8| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/".contains(&byte)
                };
                prop_assert!(reference.repository.bytes().all(plain), "{reference:?}");
                let part = |part: &str| !part.is_empty() && !part.starts_with('.');
                prop_assert!(reference.repository.split('/').all(part), "{reference:?}");
                prop_assert!(reference.tag.is_some() || reference.digest.is_some());
                prop_assert!(reference.tag.as_ref().is_none_or(|tag| is_tag(tag)));
            }
            Err(Error::Reference { reference, reason }) => {
                prop_assert!(reference.chars().count() <= 200 && reason.len() <= 200);
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    /// What is shown is what is meant: whoever copies it gets the same image.
    #[test]
    fn what_is_shown_means_the_same(text in text()) {
        if let Ok(reference) = Reference::parse(&text) {
            let shown = reference.to_string();
            match Reference::parse(&shown) {
                Ok(again) => prop_assert_eq!(again, reference, "{}", shown),
                Err(error) => prop_assert!(false, "{shown}: {error}"),
            }
        }
    }

    #[test]
    fn a_digest_with_any_other_character_is_no_digest_or_another(
        bytes in any::<[u8; 8]>(),
        at in any::<Index>(),
        other in any::<char>(),
    ) {
        let digest = Digest::of(&bytes);
        let text = digest.to_string();
        prop_assert_eq!(Digest::parse(&text), Some(digest.clone()));
        let mut changed: Vec<char> = text.chars().collect();
        let at = at.index(changed.len());
        prop_assume!(changed[at] != other);
        changed[at] = other;
        let changed: String = changed.into_iter().collect();
        prop_assert_ne!(Digest::parse(&changed), Some(digest));
    }
}
