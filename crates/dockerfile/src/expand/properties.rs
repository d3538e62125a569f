//! What holds of any text with variables in it.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Names that begin with `k` are known, with `u` unset.
struct Few;

impl Names for Few {
    fn value(&self, name: &str) -> Value {
        match name.as_bytes().first() {
            Some(b'k') => Value::Known("known $x".to_owned()),
            Some(b'u') => Value::Unset,
            _ => Value::Later,
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "$", "{", "}", "${", "${k", "${u", "${l", ":-", ":+", ":?", "-", "+", "'", "\"", "\\", "`",
        "$k", "$u", "$l", "a", " ", "$1", "é",
    ]);
    prop_oneof![
        4 => vec(piece, 0..16).prop_map(|pieces| pieces.concat()),
        1 => "\\PC{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_needed_now_is_known_now_or_refused(
        text in text(),
        escape in prop_oneof![Just('\\'), Just('`')],
    ) {
        if let Ok(found) = word(&text, escape, &Few, When::Now) {
            prop_assert!(found.known().is_some());
        }
        // Where everything is known, the build has nothing to add.
        if let Ok(found) = word(&text, escape, &Few, When::Build)
            && let Some(known) = found.known()
            && !known.contains('$')
        {
            prop_assert_eq!(found.for_build(), known);
        }
        let _any = document(&text, escape, &Few);
    }

    #[test]
    fn quoted_text_is_itself(text in "[^']{0,20}") {
        let found = word(&format!("'{text}'"), '\\', &Few, When::Now).unwrap();
        prop_assert_eq!(found.known().unwrap(), text);
    }

    #[test]
    fn escaped_text_is_itself(text in "\\PC{0,20}") {
        let escaped: String = text.chars().flat_map(|character| ['\\', character]).collect();
        let found = word(&escaped, '\\', &Few, When::Now).unwrap();
        prop_assert_eq!(found.known().unwrap(), text);
    }
}
