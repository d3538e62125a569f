//! What holds of whatever clients write as a filter.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_filter_means_what_a_client_encoded(
        pairs in btree_map(".{0,8}", ".{0,8}", 1..4),
        (name, value) in (".{0,8}", ".{0,8}"),
    ) {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (key, value) in &pairs {
            form.append_pair(&encoded(key), &encoded(value));
        }
        let filter = MetadataFilter::parse(&form.finish()).unwrap();
        prop_assert!(filter.matches(&pairs));
        let mut other = pairs.clone();
        if other.insert(name, value.clone()).is_some_and(|before| before != value) {
            prop_assert!(!filter.matches(&other));
        } else {
            prop_assert!(filter.matches(&other));
        }
        prop_assert!(!filter.matches(&BTreeMap::new()));
    }

    #[test]
    fn any_text_is_a_filter_or_refused(
        text in prop_oneof!["(a|=|&|%|25|3D|[+]|é|%C3|%A9){0,12}", ".{0,20}"],
    ) {
        if let Ok(filter) = MetadataFilter::parse(&text) {
            prop_assert!(!filter.0.is_empty());
            let length: usize = filter.0.iter().map(|(key, value)| key.len() + value.len()).sum();
            prop_assert!(length <= text.len());
        }
    }

    #[test]
    fn escapes_are_whole_or_refused(bytes in vec(any::<u8>(), 0..8)) {
        let text = bytes.iter().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        prop_assert_eq!(unescape(&text), String::from_utf8(bytes).ok());
        prop_assert_eq!(unescape(&format!("{text}%")), None);
    }
}
