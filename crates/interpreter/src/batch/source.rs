//! What a program's file must be called.

use super::catalogue::Language;

pub(super) struct Source {
    pub(super) file: String,
    /// The class to start, in Java and its like.
    pub(super) main: String,
}

pub(super) fn name(language: &Language, code: &str) -> Source {
    let main = match language.name {
        "java" => java_class(code),
        _ => "main".to_owned(),
    };
    let extension = match language.name {
        "javascript" if is_module(code) => "mjs",
        _ => language.extension,
    };
    Source {
        file: format!("{main}.{extension}"),
        main,
    }
}

/// A public class must be in a file of its name.
fn java_class(code: &str) -> String {
    let words: Vec<&str> = code.split_whitespace().collect();
    let class_after = |is_public: bool| {
        words.windows(2).enumerate().find_map(|(index, pair)| {
            let before = &words[index.saturating_sub(3)..index];
            let public = before.contains(&"public");
            let named = matches!(pair[0], "class" | "record" | "enum");
            (named && public == is_public).then(|| identifier(pair[1]))?
        })
    };
    class_after(true)
        .or_else(|| class_after(false))
        .unwrap_or_else(|| "Main".to_owned())
}

fn identifier(word: &str) -> Option<String> {
    let name: String = word
        .chars()
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .take(100)
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Whether JavaScript code has the syntax of a module.
fn is_module(code: &str) -> bool {
    let begins = |word: &str| {
        code.lines().any(|line| {
            line.trim_start().starts_with(word) && !line.trim_start().starts_with("import(")
        })
    };
    begins("import ")
        || begins("import{")
        || begins("export ")
        || (code.contains("await ") && !code.contains("async ") && !code.contains("require("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_java_file_is_called_like_its_public_class() {
        for (code, class) in [
            ("class A{} public class Hello { }", "Hello"),
            ("public final class B<T>{}", "B"),
            ("class Only{}", "Only"),
            ("int x;", "Main"),
            ("public class ../../etc {}", "Main"),
        ] {
            assert_eq!(java_class(code), class, "{code}");
        }
    }

    #[test]
    fn modules_are_told_from_scripts() {
        assert!(is_module("import fs from 'fs'"));
        assert!(is_module("const a = await fetch(1)"));
        assert!(!is_module("const fs = require('fs')"));
        assert!(!is_module("async function f() { await 1 }"));
    }
}
