//! Text that cannot become markup, neither between tags nor in a quoted attribute.

use std::fmt::{Display, Formatter, Result, Write};

/// Shows its text with every character that has a meaning in HTML or SVG as an entity.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '"' => out.write_str("&quot;"),
            '\'' => out.write_str("&#39;"),
            c if c.is_control() => out.write_char(' '),
            c => out.write_char(c),
        })
    }
}

/// Escaped as well; what is between a pair of backticks is shown as code.
pub(super) struct Prose<'a>(pub(super) &'a str);

impl Display for Prose<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let mut rest = self.0;
        while let Some((before, code, after)) = first_code(rest) {
            write!(out, "{}<code>{}</code>", Escaped(before), Escaped(code))?;
            rest = after;
        }
        Escaped(rest).fmt(out)
    }
}

fn first_code(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((before, code, after))
}

/// As much of a text as fits into a plot; tables have all of it.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let kept: String = text.chars().take(longest.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_in_tags_and_attributes() {
        let shown = Escaped("a<b>&\"c\"'d'\0").to_string();
        assert_eq!(shown, "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39; ");
    }

    #[test]
    fn code_between_backticks_is_marked_and_stays_text() {
        let shown = Prose("`a<b` and `true`, 5`").to_string();
        assert_eq!(shown, "<code>a&lt;b</code> and <code>true</code>, 5`");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("größer", 6), "größer");
        assert_eq!(shortened("größer", 4), "grö…");
    }
}
