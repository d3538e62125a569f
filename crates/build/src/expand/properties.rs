//! What holds of whatever somebody writes as a value.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn environment() -> BTreeMap<String, String> {
    let long = "x".repeat(10 << 10);
    [
        ("A", "one"),
        ("EMPTY", ""),
        ("L", long.as_str()),
        ("D", "$A"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_bounded_value_or_refused(
        pieces in vec(
            select(vec![
                "$", "{", "}", "${", "${A", "${L", "${NONE", ":-", ":+", "!", "$A", "$L", "$D", "x", "é",
            ]),
            0..40,
        ),
    ) {
        let text = pieces.concat();
        match expand(&text, &environment()) {
            Ok(value) => prop_assert!(value.len() <= LONGEST),
            Err(_) => prop_assert!(text.matches('L').count() > 10),
        }
    }

    #[test]
    fn text_without_a_reference_is_itself(text in "[^$]{0,40}(\\$[ 0-9.])?") {
        prop_assert_eq!(expand(&text, &environment()).unwrap(), text);
    }

    #[test]
    fn a_value_is_put_in_as_it_is(before in "[^$]{0,10}", after in "[^$a-zA-Z0-9_][^$]{0,10}") {
        let expected = format!("{before}$A{after}");
        let text = format!("{before}$D{after}");
        prop_assert_eq!(expand(&text, &environment()).unwrap(), expected.as_str());
        let text = format!("{before}${{D}}{after}");
        prop_assert_eq!(expand(&text, &environment()).unwrap(), expected.as_str());
        let text = format!("{before}${{NONE:-$D}}{after}");
        prop_assert_eq!(expand(&text, &environment()).unwrap(), expected);
    }
}
