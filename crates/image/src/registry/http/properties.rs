//! What holds of whatever a registry sends as an address to go on to.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_redirect_leads_to_http_or_nowhere(
        location in prop_oneof![
            "((http|https|file|ftp)?:?//)?[a-z@.:\\[\\]-]{0,10}(:[0-9]{0,6})?(/[a-z.?#@:/]{0,8})?",
            "[ -~]{0,30}",
        ],
    ) {
        let from: Uri = "https://a.example:444/v2/x/blobs/y?z".parse().unwrap();
        let Ok(value) = HeaderValue::from_str(&location) else {
            return Ok(());
        };
        if let Ok(uri) = resolve(&from, &value) {
            let target = Target::of(&uri).unwrap();
            prop_assert!(!uri.authority().unwrap().as_str().contains('@'));
            // Another host is reached only by naming it.
            if !location.contains("//") {
                prop_assert_eq!(uri.authority(), from.authority());
            }
            prop_assert!(
                target.host == "a.example"
                    || location.to_ascii_lowercase().contains(&target.host)
            );
        }
    }
}
