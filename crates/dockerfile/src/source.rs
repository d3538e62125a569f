//! Physical lines to instructions.

use crate::{Error, Result, Warning, words};

mod heredoc;

pub(crate) use heredoc::{Heredoc, is_marker as is_heredoc};

/// One instruction with everything that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub line: u32,
    /// Upper case.
    pub keyword: String,
    /// Joined over continuations, without white space around.
    pub rest: String,
    pub heredocs: Vec<Heredoc>,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub instructions: Vec<Instruction>,
    /// `\`, unless a directive says otherwise.
    pub escape: char,
    pub warnings: Vec<Warning>,
}

pub(crate) fn read(text: &str) -> Result<Source> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Lines {
        lines: text.lines().collect(),
        next: 0,
    };
    let mut source = Source {
        instructions: Vec::new(),
        escape: '\\',
        warnings: Vec::new(),
    };
    directives(&lines, &mut source)?;
    while let Some((line, first)) = lines.take() {
        if is_comment_or_empty(first) {
            continue;
        }
        let joined = lines.join(first, source.escape);
        let joined = joined.trim();
        let (keyword, rest) = joined
            .split_once(char::is_whitespace)
            .unwrap_or((joined, ""));
        let keyword = keyword.to_ascii_uppercase();
        let rest = rest.trim_start().to_owned();
        let mut heredocs = Vec::new();
        if matches!(keyword.as_str(), "RUN" | "COPY" | "ADD") && words::json_array(&rest).is_none()
        {
            for word in words::split(&rest, source.escape) {
                if let Some(mut heredoc) = heredoc::marker(&word) {
                    heredoc.body = lines.body(&heredoc).ok_or_else(|| {
                        let name = &heredoc.name;
                        Error::new(line, format!("the heredoc is not ended by a line {name:?}"))
                    })?;
                    heredocs.push(heredoc);
                }
            }
        }
        source.instructions.push(Instruction {
            line,
            keyword,
            rest,
            heredocs,
        });
    }
    Ok(source)
}

/// They count only above everything else, even comments.
fn directives(lines: &Lines<'_>, source: &mut Source) -> Result<()> {
    for (number, line) in (1..).zip(&lines.lines) {
        let Some((name, value)) = line
            .trim()
            .strip_prefix('#')
            .and_then(|directive| directive.split_once('='))
        else {
            return Ok(());
        };
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "escape" => {
                source.escape = match value {
                    "\\" => '\\',
                    "`" => '`',
                    _ => {
                        return Err(Error::new(
                            number,
                            format!("{value:?} cannot be the escape character: only \\ and ` can"),
                        ));
                    }
                }
            }
            "syntax" => {
                let frontend = value.strip_prefix("docker.io/").unwrap_or(value);
                if !frontend.starts_with("docker/dockerfile") {
                    source.warnings.push(Warning {
                        line: Some(number),
                        message: format!("the syntax {value} is read as an ordinary Dockerfile"),
                    });
                }
            }
            "check" => {}
            _ => return Ok(()),
        }
    }
    Ok(())
}

fn is_comment_or_empty(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn take(&mut self) -> Option<(u32, &'a str)> {
        let line = *self.lines.get(self.next)?;
        self.next += 1;
        Some((u32::try_from(self.next).unwrap_or(u32::MAX), line))
    }

    /// The line with those that it is continued by. Comments and empty lines between them do not
    /// end it.
    fn join(&mut self, first: &str, escape: char) -> String {
        let Some(mut joined) = continued(first, escape).map(str::to_owned) else {
            return first.to_owned();
        };
        while let Some((_, line)) = self.take() {
            if is_comment_or_empty(line) {
                continue;
            }
            if let Some(line) = continued(line, escape) {
                joined.push_str(line);
            } else {
                joined.push_str(line);
                break;
            }
        }
        joined
    }

    /// The lines up to the heredoc's end, as they are; `None`: the file ends first.
    fn body(&mut self, heredoc: &Heredoc) -> Option<String> {
        let mut body = String::new();
        loop {
            let (_, line) = self.take()?;
            let bare = if heredoc.strips_tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if bare == heredoc.name {
                return Some(body);
            }
            body.push_str(line);
            body.push('\n');
        }
    }
}

/// What stands before the escape character at the end of a line.
fn continued(line: &str, escape: char) -> Option<&str> {
    let line = line.trim_end_matches([' ', '\t']).strip_suffix(escape)?;
    (!line.ends_with(escape)).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Instruction {
        let mut found = read(text).unwrap().instructions;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn comments_and_empty_lines_do_not_end_a_continuation() {
        let found = only("# c\n\nrun a && \\\n# why\n\n   b \\  \n  c\n");
        assert_eq!((found.line, found.keyword.as_str()), (3, "RUN"));
        assert_eq!(found.rest, "a &&    b   c");
    }

    #[test]
    fn the_escape_character_can_be_chosen_at_the_top_only() {
        assert_eq!(only("# escape=`\nRUN a `\n b\\\n").rest, "a  b\\");
        let found = read("# a comment\n# escape=`\nRUN a `\nRUN b").unwrap();
        assert_eq!(found.instructions[0].rest, "a `");
        assert_eq!(read("# escape=x\n").unwrap_err().line, 1);
    }

    #[test]
    fn an_escaped_escape_does_not_continue() {
        assert_eq!(read("RUN a \\\\\nRUN b").unwrap().instructions.len(), 2);
    }

    #[test]
    fn heredocs_belong_to_their_instruction() {
        let found = read("RUN cat <<A <<-'B' > x\none\nA\n\ttwo\n\tB\nRUN b\n").unwrap();
        let heredocs = &found.instructions[0].heredocs;
        assert_eq!(heredocs[0].body, "one\n");
        assert_eq!(
            (heredocs[1].body.as_str(), heredocs[1].expands),
            ("\ttwo\n", false)
        );
        assert_eq!(found.instructions[1].line, 6);
    }

    #[test]
    fn a_heredoc_without_end_is_an_error_at_its_line() {
        let error = read("FROM a\nRUN <<EOF\nx\n").unwrap_err();
        assert_eq!(error.line, 2);
    }

    #[test]
    fn quoted_or_tripled_signs_are_no_heredocs() {
        for text in ["RUN echo \"<<EOF\"", "RUN cat <<<x", "ENV A=<<EOF"] {
            assert!(only(text).heredocs.is_empty(), "{text}");
        }
    }

    #[test]
    fn windows_line_ends_and_byte_order_marks_do_not_matter() {
        assert_eq!(only("\u{feff}RUN a \\\r\n b\r\n").rest, "a  b");
    }
}
