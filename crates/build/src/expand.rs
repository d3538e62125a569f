//! Variables in the values of ENV steps, as E2B's builder has them.
//!
//! `$NAME` and `${NAME}` are replaced, and so are the shell's `${NAME:-word}` and `${NAME:+word}`.
//! Everything else that a shell would act on (backslash, quote, backtick, `$(`) is text.

use std::collections::BTreeMap;

use crate::{
    problem::{Problem, Result},
    state::STANDARD_PATH,
};

/// A word inside a word inside a word: nobody writes deeper.
const DEEPEST: u32 = 16;

/// Of a JSON text in a default, say.
const MOST_BRACES: u32 = 128;

/// The kernel takes no longer string for a program. Values that name values grow without end
/// otherwise: a few short steps would fill the server's memory.
const LONGEST: usize = 128 << 10;

pub(crate) fn expand(text: &str, env: &BTreeMap<String, String>) -> Result<String> {
    // What is too long already is not read.
    let short = Some(text).filter(|text| text.len() <= LONGEST);
    let expanded = short.and_then(|text| expand_at(text, env, 0));
    expanded.ok_or_else(|| {
        Problem::user(format!(
            "a value is longer than {LONGEST} bytes with its variables replaced"
        ))
    })
}

/// `None`: it gets too long.
fn expand_at(text: &str, env: &BTreeMap<String, String>, depth: u32) -> Option<String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at..];
        let (value, length) = reference(rest, env, depth)?;
        expanded.push_str(&value);
        if expanded.len() > LONGEST {
            return None;
        }
        rest = &rest[length..];
    }
    expanded.push_str(rest);
    (expanded.len() <= LONGEST).then_some(expanded)
}

/// What stands for the reference at the start of `text`, and its length. A `$` alone is itself.
fn reference(text: &str, env: &BTreeMap<String, String>, depth: u32) -> Option<(String, usize)> {
    let itself = || Some(("$".to_owned(), 1));
    let after = &text[1..];
    if let Some(braced) = after.strip_prefix('{') {
        let name = name_of(braced);
        let Some(word_length) = closing_brace(&braced[name.len()..]) else {
            return itself();
        };
        if name.is_empty() || depth == DEEPEST {
            return itself();
        }
        let word = &braced[name.len()..][..word_length];
        let length = 2 + name.len() + word_length + 1;
        return match with_operator(name, word, env, depth)? {
            Expansion::Value(value) => Some((value, length)),
            Expansion::Itself => itself(),
        };
    }
    match name_of(after) {
        "" => itself(),
        name => Some((value_of(name, env), 1 + name.len())),
    }
}

/// `None`: it gets too long. A `rest` that is no operator makes the whole reference text.
fn with_operator(
    name: &str,
    rest: &str,
    env: &BTreeMap<String, String>,
    depth: u32,
) -> Option<Expansion> {
    let value = value_of(name, env);
    let word = |text: &str| expand_at(text, env, depth + 1);
    let meant = if rest.is_empty() {
        value
    } else if let Some(default) = rest.strip_prefix(":-") {
        if value.is_empty() {
            word(default)?
        } else {
            value
        }
    } else if let Some(other) = rest.strip_prefix(":+") {
        if value.is_empty() {
            value
        } else {
            word(other)?
        }
    } else {
        return Some(Expansion::Itself);
    };
    Some(Expansion::Value(meant))
}

enum Expansion {
    Value(String),
    Itself,
}

/// Where the brace that was opened before `text` closes. One with more than [`MOST_BRACES`] open in
/// it does not: every brace is looked at by those around it, and there are as many as are written.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
        if open > MOST_BRACES {
            return None;
        }
    }
    None
}

fn name_of(text: &str) -> &str {
    let end = text
        .bytes()
        .enumerate()
        .find(|(at, byte)| {
            !(byte.is_ascii_alphabetic() || *byte == b'_' || *at > 0 && byte.is_ascii_digit())
        })
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// E2B's root shell also knows where it is at home.
fn value_of(name: &str, env: &BTreeMap<String, String>) -> String {
    env.get(name).map_or_else(
        || match name {
            "PATH" => STANDARD_PATH.to_owned(),
            "HOME" => "/root".to_owned(),
            "USER" | "LOGNAME" => "root".to_owned(),
            _ => String::new(),
        },
        Clone::clone,
    )
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        let env = [("A", "one"), ("B_2", "two"), ("EMPTY", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        expand(text, &env.into()).unwrap()
    }

    #[test]
    fn names_with_and_without_braces_are_replaced() {
        assert_eq!(expanded("$A"), "one");
        assert_eq!(expanded("${A}${B_2}x$A/$B_2-"), "onetwoxone/two-");
        assert_eq!(expanded("[$NONE][${NONE}]"), "[][]");
        assert_eq!(expanded("$PATH"), STANDARD_PATH);
        assert_eq!(expanded("$HOME"), "/root");
    }

    #[test]
    fn defaults_are_taken_for_what_is_empty() {
        assert_eq!(expanded("${NONE:-x}${EMPTY:-y}${A:-z}"), "xyone");
        assert_eq!(expanded("${NONE:-${B_2}}"), "two");
        assert_eq!(expanded("[${A:+set}][${EMPTY:+set}]"), "[set][]");
    }

    #[test]
    fn what_a_shell_would_run_or_unquote_is_text() {
        for text in [
            r"a\b",
            r#"say "hi""#,
            "`id`",
            "$(id)",
            "$",
            "$$",
            "$1",
            "a$",
            "${",
            "${}",
            "${A",
            "${A!}",
            "é$é",
        ] {
            assert_eq!(expanded(text), text);
        }
        assert_eq!(expanded(r"\$A"), r"\one", "the backslash does not protect");
        assert_eq!(expanded("$(echo $A)"), "$(echo one)");
    }

    #[test]
    fn words_in_words_have_an_end() {
        let deep = "${X:-".repeat(1000) + &"}".repeat(1000);
        assert!(expanded(&deep).contains('$'));
    }

    /// A request has room for many braces, and looking for the end of each would take minutes.
    #[test]
    fn braces_that_close_late_or_never_take_no_longer_than_others() {
        let open = "${".repeat(LONGEST / 2);
        let nested = "${A!".repeat(LONGEST / 5) + &"}".repeat(LONGEST / 5);
        let started = std::time::Instant::now();
        for text in [open, nested] {
            assert_eq!(expanded(&text), text);
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn values_do_not_grow_without_end() {
        let long = "x".repeat(100 << 10);
        let env = [("A".to_owned(), long)].into();
        assert!(expand("$A", &env).is_ok());
        for text in ["$A$A", "${A}${A}", "${NONE:-$A$A}", "${A:+$A$A}"] {
            assert!(expand(text, &env).is_err(), "{text}");
        }
    }
}
