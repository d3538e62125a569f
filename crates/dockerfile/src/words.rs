//! Words, flags and JSON arrays.

/// Splits at white space outside quotes; the words keep their quotes and escapes.
pub(crate) fn split(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == escape && quote != Some('\'') {
            word.push(character);
            word.extend(characters.next());
            continue;
        }
        match quote {
            Some(open) => {
                word.push(character);
                if character == open {
                    quote = None;
                }
            }
            None if character.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            None => {
                if matches!(character, '"' | '\'') {
                    quote = Some(character);
                }
                word.push(character);
            }
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// `--name` or `--name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    pub name: String,
    pub value: Option<String>,
}

/// Takes the flags off the front.
pub(crate) fn flags(mut rest: &str) -> (Vec<Flag>, &str) {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word == "--" {
            return (found, after.trim_start());
        }
        let Some(flag) = word.strip_prefix("--") else {
            return (found, rest);
        };
        found.push(match flag.split_once('=') {
            Some((name, value)) => Flag {
                name: name.to_owned(),
                value: Some(value.trim_matches('"').to_owned()),
            },
            None => Flag {
                name: flag.to_owned(),
                value: None,
            },
        });
        rest = after;
    }
}

/// The words of `["a", "b"]`; `None` for anything else, also for what only looks like it.
pub(crate) fn json_array(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    if !text.starts_with('[') {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// A bracket at both ends that is no JSON: the author probably meant an array.
pub(crate) fn looks_like_array(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('[')
        && !text.starts_with("[[")
        && !text.starts_with("[ ")
        && text.ends_with(']')
}

/// One word for a shell.
pub(crate) fn quote(word: &str) -> String {
    let harmless = |character: char| {
        character.is_ascii_alphanumeric() || "_@%+:,./-".contains(character)
            // An assignment in front of a command would not be a word of it.
            || (character == '=' && word.starts_with('-'))
    };
    if !word.is_empty() && word.chars().all(harmless) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A command line of these words.
pub(crate) fn join(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_hold_words_together() {
        assert_eq!(
            split(r#"a "b c" 'd e'f g\ h "i \" j""#, '\\'),
            ["a", "\"b c\"", "'d e'f", "g\\ h", "\"i \\\" j\""]
        );
        assert!(split("  \t ", '\\').is_empty());
    }

    #[test]
    fn flags_end_at_the_first_other_word() {
        let (found, rest) = flags("--from=x --link a --b");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].value.as_deref(), Some("x"));
        assert_eq!((found[1].name.as_str(), rest), ("link", "a --b"));
        assert_eq!(flags("-- --a").1, "--a");
    }

    #[test]
    fn only_arrays_of_strings_are_arrays() {
        assert_eq!(json_array(r#" ["a", "b c"] "#).unwrap(), ["a", "b c"]);
        assert!(json_array("['a']").is_none() && json_array("[1]").is_none());
        assert!(looks_like_array("['a']"));
        assert!(!looks_like_array("[ -f x ]") && !looks_like_array("[[ -f x ]]"));
    }

    #[test]
    fn words_survive_a_shell() {
        let words = ["echo", "it's", "$HOME", "", "A=b", "--x=y"].map(str::to_owned);
        assert_eq!(join(&words), r"echo 'it'\''s' '$HOME' '' 'A=b' --x=y");
    }
}
