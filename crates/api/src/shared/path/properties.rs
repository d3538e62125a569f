//! What holds of whatever clients write as a sandbox's id.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_id_is_the_one_that_was_written_or_refused(
        text in prop_oneof!["i[a-z0-9]{0,20}(-[a-z0-9-]{0,8})?", ".{0,20}"],
    ) {
        if let Ok(id) = sandbox_id(&text) {
            let (written, client) = text.split_once('-').unwrap_or((&text, ""));
            prop_assert_eq!(id.as_str(), written);
            prop_assert!(!client.contains('-'));
        }
    }
}
