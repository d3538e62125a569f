//! Languages by the names that clients use, and what they need written in the language itself.

use std::collections::BTreeMap;

/// A language's name, trimmed, in lower case, with the aliases resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Language(String);

/// Values to set, and names to remove.
pub(crate) type Changes = BTreeMap<String, Option<String>>;

impl Language {
    pub(crate) fn new(name: &str) -> Self {
        let name = name.trim().to_lowercase();
        Self(match name.as_str() {
            "js" => "javascript".to_owned(),
            "ts" => "typescript".to_owned(),
            _ => name,
        })
    }

    pub(crate) fn python() -> Self {
        Self("python".to_owned())
    }

    pub(crate) fn javascript() -> Self {
        Self("javascript".to_owned())
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_python(&self) -> bool {
        self.0 == "python"
    }

    pub(crate) fn is_bash(&self) -> bool {
        self.0 == "bash"
    }

    /// The names under which a kernel for it may be installed, the best first.
    pub(crate) fn kernel_names(&self) -> Vec<&str> {
        match self.name() {
            "python" => vec!["python", "python3"],
            "typescript" => vec!["typescript", "javascript"],
            "r" => vec!["r", "ir"],
            name => vec![name],
        }
    }

    /// A cell that changes environment variables; none when there is nothing to change or the
    /// language has no way.
    pub(crate) fn environment(&self, changes: &Changes) -> Option<String> {
        let lines: Vec<String> = changes
            .iter()
            .filter(|(name, value)| is_usable(name, value.as_deref()))
            .filter_map(|(name, value)| self.assignment(name, value.as_deref()))
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn assignment(&self, name: &str, value: Option<&str>) -> Option<String> {
        let key = quoted(name);
        let line = match (self.name(), value) {
            ("python", Some(value)) => {
                format!("__import__('os').environ[{key}] = {}", quoted(value))
            }
            ("python", None) => format!("__import__('os').environ.pop({key}, None)"),
            ("javascript" | "typescript", Some(value)) => {
                format!("process.env[{key}] = {};", quoted(value))
            }
            ("javascript" | "typescript", None) => format!("delete process.env[{key}];"),
            ("r", Some(value)) => {
                format!(
                    "do.call(Sys.setenv, setNames(list({}), {key}))",
                    quoted(value)
                )
            }
            ("r", None) => format!("Sys.unsetenv({key})"),
            ("java", Some(value)) => format!("System.setProperty({key}, {});", quoted(value)),
            ("java", None) => format!("System.clearProperty({key});"),
            ("bash", _) if !is_shell_name(name) => return None,
            ("bash", Some(value)) => format!("export {name}={}", shell_quoted(value)),
            ("bash", None) => format!("unset -v {name}"),
            _ => return None,
        };
        Some(line)
    }
}

/// No process can have other variables.
fn is_usable(name: &str, value: Option<&str>) -> bool {
    !name.is_empty()
        && !name.contains(['=', '\0'])
        && !value.is_some_and(|value| value.contains('\0'))
}

fn is_shell_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && name
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// A JSON string is a literal in Python, JavaScript, R and Java alike: what it escapes they all
/// read the same way, and it leaves what is beyond ASCII as it is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Within single quotes a shell reads everything as it stands.
pub(crate) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(language: &str, name: &str, value: &str) -> Option<String> {
        let changes = Changes::from([(name.to_owned(), Some(value.to_owned()))]);
        Language::new(language).environment(&changes)
    }

    fn unset(language: &str, name: &str) -> Option<String> {
        Language::new(language).environment(&Changes::from([(name.to_owned(), None)]))
    }

    #[test]
    fn names_are_trimmed_lowered_and_aliases_resolved() {
        for (given, name) in [(" JS ", "javascript"), ("Ts", "typescript"), ("R", "r")] {
            assert_eq!(Language::new(given).name(), name);
        }
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        let value = "a\"b'c\\d\n$(e)";
        for (language, cell) in [
            (
                "python",
                r#"__import__('os').environ["V"] = "a\"b'c\\d\n$(e)""#,
            ),
            ("js", r#"process.env["V"] = "a\"b'c\\d\n$(e)";"#),
            (
                "r",
                r#"do.call(Sys.setenv, setNames(list("a\"b'c\\d\n$(e)"), "V"))"#,
            ),
            ("java", r#"System.setProperty("V", "a\"b'c\\d\n$(e)");"#),
            ("bash", "export V='a\"b'\\''c\\d\n$(e)'"),
        ] {
            assert_eq!(set(language, "V", value).unwrap(), cell, "{language}");
        }
    }

    #[test]
    fn variables_are_removed_in_every_language() {
        for (language, cell) in [
            ("python", r#"__import__('os').environ.pop("V", None)"#),
            ("typescript", r#"delete process.env["V"];"#),
            ("r", r#"Sys.unsetenv("V")"#),
            ("java", r#"System.clearProperty("V");"#),
            ("bash", "unset -v V"),
        ] {
            assert_eq!(unset(language, "V").unwrap(), cell, "{language}");
        }
    }

    #[test]
    fn names_that_no_environment_can_have_are_left_out() {
        for name in ["", "a=b", "a\0"] {
            assert_eq!(set("python", name, "1"), None);
        }
        assert_eq!(set("python", "a", "\0"), None);
        for name in ["a b", "1a", "a;id", "$(id)"] {
            assert_eq!(set("bash", name, "1"), None, "{name}");
        }
    }

    #[test]
    fn languages_without_a_way_are_left_alone() {
        assert_eq!(set("deno", "V", "1"), None);
    }
}
