//! What holds of any text that is cut into words, and of any words that a shell gets.

use std::process::Command;

use proptest::{collection::vec, prelude::*};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn words_are_all_of_the_text_but_the_space_between_them(
        text in prop_oneof!["[a\"'\\\\` \t]{0,16}", "\\PC{0,20}"],
        escape in prop_oneof![Just('\\'), Just('`')],
    ) {
        let words = split(&text, escape);
        let mut rest = text.as_str();
        for word in &words {
            rest = rest.trim_start().strip_prefix(word.as_str()).unwrap();
        }
        prop_assert_eq!(rest.trim(), "");
        prop_assert_eq!(split(&words.join(" "), escape), words);
    }

    #[test]
    fn flags_and_the_rest_are_in_the_text(text in "(--[a-z=\"]{0,6}| |a|-){0,8}") {
        let (found, rest) = flags(&text);
        prop_assert!(text.ends_with(rest));
        for flag in found {
            let written = format!("--{}", flag.name);
            prop_assert!(text.contains(&written), "{written}");
        }
    }
}

proptest! {
    // Each of them starts a shell.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_shell_gets_exactly_these_words(
        words in vec(prop_oneof!["[a-z$'\"\\\\ =~*!#;&|(){}<>\n-]{0,8}", "[^\0]{0,8}"], 0..5),
    ) {
        let line = format!("printf '%s\\0' x {}", join(&words));
        let output = Command::new("/bin/sh").args(["-c", &line]).output().unwrap();
        let printed: String = words.iter().flat_map(|word| [word.as_str(), "\0"]).collect();
        prop_assert_eq!(String::from_utf8_lossy(&output.stdout), format!("x\0{printed}"));
    }
}
