//! `<<EOF` and what follows.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heredoc {
    pub name: String,
    /// The name was not quoted.
    pub expands: bool,
    /// `<<-`: tabs in front of the lines are not part of them.
    pub strips_tabs: bool,
    /// As written, each line with its end, without the last.
    pub body: String,
}

impl Heredoc {
    /// The body as a file's content.
    pub(crate) fn content(&self) -> String {
        if !self.strips_tabs {
            return self.body.clone();
        }
        let lines = self.body.lines().map(|line| line.trim_start_matches('\t'));
        lines.flat_map(|line| [line, "\n"]).collect()
    }
}

/// The heredoc that a word opens, still without body.
pub(super) fn marker(word: &str) -> Option<Heredoc> {
    let word = word.trim_start_matches(|character: char| character.is_ascii_digit());
    let name = word.strip_prefix("<<")?;
    let (name, strips_tabs) = match name.strip_prefix('-') {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.contains('<') {
        return None;
    }
    // What a shell would take for the end of the word.
    let end = name
        .find(['>', '|', '&', ';', '(', ')'])
        .unwrap_or(name.len());
    let name = &name[..end];
    let expands = !name.contains(['"', '\'', '\\']);
    let name = name.replace(['"', '\'', '\\'], "");
    (!name.is_empty()).then_some(Heredoc {
        name,
        expands,
        strips_tabs,
        body: String::new(),
    })
}

/// Whether a word is nothing but the opening of a heredoc.
pub(crate) fn is_marker(word: &str) -> bool {
    marker(word).is_some()
}
