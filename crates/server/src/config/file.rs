//! The configuration file, and what is wrong with it: which line, which key, and which key was
//! probably meant.

use std::path::Path;

use clap::Args;

use super::{ConfigError, Settings};

/// How alike two names must be, from 0 to 1, so that one was probably meant for the other.
const ALIKE: f64 = 0.8;

impl Settings {
    /// Reads a file. Unknown keys are errors: a typo would otherwise be a silent default.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = fs_err::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_at(&text, span.start));
            let written = text.lines().nth(line - 1).unwrap_or_default().trim();
            ConfigError::Parse {
                path: path.to_owned(),
                line,
                written: written.to_owned(),
                problem: problem(error.message(), written),
            }
        })
    }
}

/// The keys of the file are the names of the options.
pub(super) fn keys() -> Vec<String> {
    Settings::augment_args(clap::Command::new("serve"))
        .get_arguments()
        .filter_map(|argument| argument.get_long().map(str::to_owned))
        .collect()
}

/// Counted from 1.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// In words for people: those of the library name its types.
fn problem(said: &str, written: &str) -> String {
    if let Some(key) = said
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'))
        .map(|(key, _)| key)
    {
        return unknown(key, written);
    }
    let key = written.split('=').next().unwrap_or_default().trim();
    if let Some((found, expected)) = said
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        return format!("`{key}` must be {}, not {found}", wanted(expected));
    }
    if keys().iter().any(|known| known == key) {
        return format!("`{key}`: {said}");
    }
    said.to_owned()
}

fn unknown(key: &str, written: &str) -> String {
    if written.starts_with('[') {
        return format!("there is no section `{key}`: options are written without sections");
    }
    let dashed = key.to_lowercase().replace('_', "-");
    let near = keys()
        .into_iter()
        .map(|known| (strsim::jaro_winkler(&dashed, &known), known))
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .filter(|(alike, _)| *alike >= ALIKE);
    match near {
        Some((_, known)) => format!("there is no option `{key}`: did you mean `{known}`?"),
        None => format!(
            "there is no option `{key}`: the keys are the options of `soulbox serve --help` without \
             the dashes in front"
        ),
    }
}

/// What serde calls a type, as an operator writes it.
fn wanted(expected: &str) -> &str {
    match expected {
        "socket address" => "an address and a port in quotes, such as \"127.0.0.1:3000\"",
        "a string" | "path string" => "text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list, such as [\"one\", \"two\"]",
        "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f64" => "a number",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), text).unwrap();
        let told = Settings::from_file(file.path()).unwrap_err().to_string();
        let place = format!("{}, ", file.path().display());
        told.strip_prefix(&place).unwrap().to_owned()
    }

    #[test]
    fn what_was_mistyped_is_told_with_its_line_and_what_was_meant() {
        for (text, told) in [
            (
                "pool = 3\nmax-sandbox = 5\n",
                "line 2 (max-sandbox = 5): there is no option `max-sandbox`: did you mean \
                 `max-sandboxes`?",
            ),
            (
                "max_sandboxes = 5",
                "line 1 (max_sandboxes = 5): there is no option `max_sandboxes`: did you mean \
                 `max-sandboxes`?",
            ),
            (
                "# a\n\n[server]\nlisten = '127.0.0.1:1'\n",
                "line 3 ([server]): there is no section `server`: options are written without \
                 sections",
            ),
            (
                "xyzzy = 1",
                "line 1 (xyzzy = 1): there is no option `xyzzy`: the keys are the options of \
                 `soulbox serve --help` without the dashes in front",
            ),
            (
                "listen = 5",
                "line 1 (listen = 5): `listen` must be an address and a port in quotes, such as \
                 \"127.0.0.1:3000\", not integer `5`",
            ),
            (
                "max-sandboxes = '5'",
                "line 1 (max-sandboxes = '5'): `max-sandboxes` must be a whole number, not string \
                 \"5\"",
            ),
            (
                "registry-allow = 'a:5000'",
                "line 1 (registry-allow = 'a:5000'): `registry-allow` must be a list, such as \
                 [\"one\", \"two\"], not string \"a:5000\"",
            ),
            (
                "max-timeout = '5x'",
                "line 1 (max-timeout = '5x'): `max-timeout`: `5x` is not a time: write 300s, 90m, \
                 24h or 7d",
            ),
        ] {
            assert_eq!(refused(text), told);
        }
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let told = refused("pool = 3\nlisten =\n");
        assert!(told.starts_with("line 2 (listen =): "), "{told}");
    }

    #[test]
    fn the_keys_are_the_options() {
        let keys = keys();
        assert!(keys.iter().any(|key| key == "registry-mirror"), "{keys:?}");
        for key in keys {
            let told = refused(&format!("{key} = {{}}"));
            assert!(!told.contains("there is no"), "{told}");
        }
    }
}
