//! `$X`, `${X:-y}`, quotes and escapes, as Docker reads them.

/// A word inside a word inside a word: nobody writes deeper, and each level takes some of the stack.
const DEEPEST: u32 = 32;
/// What variables may add to one word. The kernel takes no longer string for a program, and values
/// that name values grow without end otherwise: a few short lines would fill the memory.
const LONGEST: usize = 128 << 10;
/// The same for a heredoc, which is a file.
const LONGEST_DOCUMENT: usize = 16 << 20;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Known(String),
    Unset,
    /// Known only during the build: it may come from the image.
    Later,
}

pub(crate) trait Names {
    fn value(&self, name: &str) -> Value;
}

/// When the outcome is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Now: a name that only the build knows is an error.
    Now,
    /// The build puts in what only it knows.
    Build,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(String),
    /// An expression for the build.
    Later(String),
}

/// Text in which some parts may be left for the build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text(Vec<Segment>);

impl Text {
    /// `None`: some of it is left for the build.
    pub(crate) fn known(&self) -> Option<String> {
        self.0
            .iter()
            .map(|segment| match segment {
                Segment::Text(text) => Some(text.as_str()),
                Segment::Later(_) => None,
            })
            .collect()
    }

    /// As a value of an ENV step: the build puts in `$X` and `${X}` once more.
    pub(crate) fn for_build(&self) -> String {
        let mut all = String::new();
        for segment in &self.0 {
            match segment {
                Segment::Text(text) => all.push_str(&protected(text)),
                Segment::Later(expression) => all.push_str(expression),
            }
        }
        all
    }

    fn push(&mut self, character: char) {
        if let Some(Segment::Text(text)) = self.0.last_mut() {
            text.push(character);
        } else {
            self.0.push(Segment::Text(character.to_string()));
        }
    }

    fn append(&mut self, other: Self) {
        for segment in other.0 {
            match segment {
                Segment::Text(text) => text.chars().for_each(|character| self.push(character)),
                later @ Segment::Later(_) => self.0.push(later),
            }
        }
    }
}

/// ENV steps know no escapes, so that a `$` in front of a name hides as the default of a variable
/// that nobody sets.
fn protected(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let opens = |next: &char| next.is_ascii_alphabetic() || matches!(next, '_' | '{');
        if character == '$' && characters.peek().is_some_and(opens) {
            safe.push_str("${__:-$}");
        } else {
            safe.push(character);
        }
    }
    safe
}

/// A word of an instruction: quotes and escapes are taken away. The error is a reason.
pub(crate) fn word(
    text: &str,
    escape: char,
    names: &dyn Names,
    when: When,
) -> Result<Text, String> {
    Expander::new(text, escape, names, when, true, LONGEST).until(None)
}

/// A heredoc: quotes stay, and the escape character only protects `$` and itself.
pub(crate) fn document(text: &str, escape: char, names: &dyn Names) -> Result<String, String> {
    let mut expander = Expander::new(text, escape, names, When::Now, false, LONGEST_DOCUMENT);
    let text = expander.until(None)?;
    text.known()
        .ok_or_else(|| "it is not known before the build".to_owned())
}

struct Expander<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    escape: char,
    names: &'a dyn Names,
    when: When,
    quotes: bool,
    /// How many words this one is inside of.
    depth: u32,
    /// What values may still add.
    room: usize,
}

impl<'a> Expander<'a> {
    fn new(
        text: &'a str,
        escape: char,
        names: &'a dyn Names,
        when: When,
        quotes: bool,
        room: usize,
    ) -> Self {
        Self {
            rest: text.chars().peekable(),
            escape,
            names,
            when,
            quotes,
            depth: 0,
            room,
        }
    }

    /// To the end, or to `stop`, which is taken too.
    fn until(&mut self, stop: Option<char>) -> Result<Text, String> {
        let mut text = Text::default();
        loop {
            let Some(character) = self.rest.next() else {
                return match stop {
                    Some(stop) => Err(format!("{stop:?} is missing")),
                    None => Ok(text),
                };
            };
            match character {
                _ if Some(character) == stop => return Ok(text),
                '\'' if self.quotes => self.single_quoted(&mut text)?,
                '"' if self.quotes => self.double_quoted(&mut text)?,
                '$' => {
                    let value = self.variable()?;
                    text.append(value);
                }
                _ if character == self.escape => self.escaped(&mut text),
                _ => text.push(character),
            }
        }
    }

    fn escaped(&mut self, text: &mut Text) {
        let protects = |next: char| next == '$' || next == self.escape;
        match self.rest.peek().copied() {
            Some(next) if self.quotes || protects(next) => {
                self.rest.next();
                text.push(next);
            }
            _ => text.push(self.escape),
        }
    }

    fn single_quoted(&mut self, text: &mut Text) -> Result<(), String> {
        loop {
            match self.rest.next() {
                None => return Err("a ' is not closed".to_owned()),
                Some('\'') => return Ok(()),
                Some(character) => text.push(character),
            }
        }
    }

    fn double_quoted(&mut self, text: &mut Text) -> Result<(), String> {
        // Even an empty pair makes a word.
        text.append(Text(vec![Segment::Text(String::new())]));
        loop {
            match self.rest.next() {
                None => return Err("a \" is not closed".to_owned()),
                Some('"') => return Ok(()),
                Some('$') => {
                    let value = self.variable()?;
                    text.append(value);
                }
                Some(character) if character == self.escape => match self.rest.peek().copied() {
                    Some(next) if next == '"' || next == '$' || next == self.escape => {
                        self.rest.next();
                        text.push(next);
                    }
                    _ => text.push(character),
                },
                Some(character) => text.push(character),
            }
        }
    }

    /// After a `$`.
    fn variable(&mut self) -> Result<Text, String> {
        match self.rest.peek() {
            Some('{') => {
                self.rest.next();
                self.braced()
            }
            Some(first) if first.is_ascii_alphabetic() || *first == '_' => {
                let name = self.name();
                self.plain(&name)
            }
            // What a shell would call its parameters: there are none.
            Some(first) if first.is_ascii_digit() || "@*#?-!$".contains(*first) => {
                self.rest.next();
                Ok(Text::default())
            }
            _ => Ok(Text(vec![Segment::Text("$".to_owned())])),
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(next) = self
            .rest
            .next_if(|next| next.is_ascii_alphanumeric() || *next == '_')
        {
            name.push(next);
        }
        name
    }

    fn plain(&mut self, name: &str) -> Result<Text, String> {
        match self.names.value(name) {
            Value::Known(value) => {
                let left = self.room.checked_sub(value.len());
                self.room = left.ok_or_else(|| {
                    format!("with the value of ${name} it is longer than it can be")
                })?;
                Ok(Text(vec![Segment::Text(value)]))
            }
            Value::Unset => Ok(Text::default()),
            Value::Later if self.when == When::Build => {
                Ok(Text(vec![Segment::Later(format!("${{{name}}}"))]))
            }
            Value::Later => Err(format!(
                "${name} is not known before the build: only what ARG and ENV of this file say is; \
                 declare it with ARG {name}=… or ENV {name}=…"
            )),
        }
    }

    fn braced(&mut self) -> Result<Text, String> {
        let name = self.name();
        if name.is_empty() {
            return Err("${ needs a name".to_owned());
        }
        let colon = self.rest.next_if_eq(&':').is_some();
        let operator = match self.rest.next() {
            Some('}') if !colon => return self.plain(&name),
            Some(operator @ ('-' | '+' | '?')) => operator,
            Some(other) => {
                let colon = if colon { ":" } else { "" };
                return Err(format!(
                    "${{{name}{colon}{other}…}} is not supported: only :- :+ :? - + and ? are"
                ));
            }
            None => return Err(format!("${{{name} is not closed")),
        };
        if self.depth == DEEPEST {
            return Err(format!(
                "words in words are nested more than {DEEPEST} deep"
            ));
        }
        self.depth += 1;
        let word = self.until(Some('}'))?;
        self.depth -= 1;
        let value = self.names.value(&name);
        if value == Value::Later && self.when == When::Build {
            // The build knows two operators and takes empty for unset.
            return match operator {
                '?' => self.plain(&name),
                _ => Ok(Text(vec![Segment::Later(format!(
                    "${{{name}:{operator}{}}}",
                    word.for_build()
                ))])),
            };
        }
        let present = match &value {
            Value::Known(value) => !(colon && value.is_empty()),
            Value::Unset | Value::Later => false,
        };
        match (operator, present) {
            ('-', false) | ('+', true) => Ok(word),
            ('+', false) => Ok(Text::default()),
            ('?', false) => {
                let message = word.known().unwrap_or_default();
                Err(if message.is_empty() {
                    format!("{name} must be set")
                } else {
                    format!("{name}: {message}")
                })
            }
            _ => self.plain(&name),
        }
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    impl Names for Known {
        fn value(&self, name: &str) -> Value {
            match name {
                "A" => Value::Known("one".to_owned()),
                "EMPTY" => Value::Known(String::new()),
                "NONE" => Value::Unset,
                _ => Value::Later,
            }
        }
    }

    fn now(text: &str) -> Result<String, String> {
        word(text, '\\', &Known, When::Now).map(|text| text.known().unwrap())
    }

    fn build(text: &str) -> Result<String, String> {
        word(text, '\\', &Known, When::Build).map(|text| text.for_build())
    }

    #[test]
    fn names_are_put_in_with_dockers_modifiers() {
        let cases = [
            ("$A-${A}x", "one-onex"),
            ("$NONE", ""),
            ("${NONE:-d}", "d"),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY-d}", ""),
            ("${A:+yes}${NONE:+no}", "yes"),
            ("${EMPTY+yes}", "yes"),
            ("${NONE:-${A}/x}", "one/x"),
            ("${A:?must}", "one"),
            ("a$", "a$"),
            ("$1$@x", "x"),
        ];
        for (text, expected) in cases {
            assert_eq!(now(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn quotes_and_escapes_are_taken_away() {
        let cases = [
            (r"'$A'", "$A"),
            (r#""$A b""#, "one b"),
            (r"\$A", "$A"),
            (r#""\$A \" \n""#, r#"$A " \n"#),
            (r"a\ b", "a b"),
            (r#"x"""#, "x"),
        ];
        for (text, expected) in cases {
            assert_eq!(now(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(now("'a").is_err() && now("\"a").is_err() && now("${A").is_err());
    }

    #[test]
    fn what_only_the_image_knows_is_left_for_the_build_or_refused() {
        assert_eq!(build("/x:$PATH").as_deref(), Ok("/x:${PATH}"));
        assert_eq!(build("/x${LIB:+:$LIB}").as_deref(), Ok("/x${LIB:+:${LIB}}"));
        assert!(now("$PATH").unwrap_err().contains("ARG PATH"));
        assert_eq!(now("${HERE:-/app}").as_deref(), Ok("/app"));
    }

    #[test]
    fn a_dollar_that_the_build_would_expand_is_protected() {
        assert_eq!(build(r"\$HOME").as_deref(), Ok("${__:-$}HOME"));
        assert_eq!(build(r"5\$ or \$(x)").as_deref(), Ok("5$ or $(x)"));
        assert_eq!(build("${P+x}${Q-y}").as_deref(), Ok("${P:+x}${Q:-y}"));
    }

    #[test]
    fn words_in_words_have_an_end() {
        let deep = "${NONE:-".repeat(200_000) + &"}".repeat(200_000);
        assert!(now(&deep).is_err() && build(&deep).is_err());
        assert!(document(&deep, '\\', &Known).is_err());
        assert!(now(&"\"${NONE:-".repeat(200_000)).is_err());
    }

    #[test]
    fn unknown_modifiers_are_named() {
        assert!(now("${A%x}").unwrap_err().contains("${A%…}"));
        assert!(now("${NONE:?give one}").unwrap_err().contains("give one"));
    }

    #[test]
    fn documents_keep_their_quotes_and_most_escapes() {
        assert_eq!(
            document("'$A' \"x\" \\$A \\. \\\\", '\\', &Known).as_deref(),
            Ok("'one' \"x\" $A \\. \\")
        );
    }
}
