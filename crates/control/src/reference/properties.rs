//! What holds of whatever clients write as the name of a template.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_name_is_plain_or_refused_and_reads_as_it_is_shown(
        text in prop_oneof![
            "([a-zA-Z0-9_-]{0,6}/)?[a-zA-Z0-9_-]{0,12}(:[a-zA-Z0-9._-]{0,8})?",
            " ?.{0,20}",
            "[a-z]{120,140}",
            "[İK\u{212a}ſ]{1,4}",
        ],
    ) {
        match Reference::parse(&text) {
            Ok(reference) => {
                let plain = |text: &str| {
                    let good = |byte: u8| {
                        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte)
                    };
                    !text.is_empty() && text.bytes().all(good)
                };
                let Reference { namespace, name, tag } = &reference;
                prop_assert!(plain(name) && !name.contains('.'));
                prop_assert!(namespace.as_deref().is_none_or(plain));
                prop_assert!(tag.as_deref().is_none_or(plain));
                let namespace = namespace.as_ref().map_or_else(String::new, |text| format!("{text}/"));
                let tag = tag.as_ref().map_or_else(String::new, |text| format!(":{text}"));
                let shown = format!("{namespace}{name}{tag}");
                prop_assert!(shown.len() <= MAX_LENGTH);
                prop_assert_eq!(Reference::parse(&shown).ok(), Some(reference));
            }
            Err(error) => prop_assert!(matches!(error, Error::InvalidReference(_)), "{error:?}"),
        }
    }
}
