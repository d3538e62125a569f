//! The `export NAME=value` lines of the server's `env` file.

use std::collections::BTreeMap;

/// Lines of any other shape are passed over: the file is for shells, and people edit it.
pub(super) fn parse(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(assignment).collect()
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let (name, value) = line.split_once('=')?;
    let valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    valid.then(|| (name.to_owned(), unquote(value.trim()).to_owned()))
}

fn unquote(value: &str) -> &str {
    for quote in ['"', '\''] {
        let inner = value
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_with_or_without_quotes() {
        let found = parse("# key\nexport A=1\nexport B='two'\nC=\"3\"\n\nset -e\n$(x)=y\n");
        let expected = [("A", "1"), ("B", "two"), ("C", "3")];
        assert_eq!(found.len(), expected.len());
        for (name, value) in expected {
            assert_eq!(found[name], value);
        }
    }
}
