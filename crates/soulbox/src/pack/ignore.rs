//! `.dockerignore`: what never leaves the machine.

use std::{io, path::Path};

use super::pattern::Pattern;

#[derive(Debug, Clone, Default)]
pub(crate) struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: Pattern,
    /// `!`: takes back what earlier rules left out.
    keeps: bool,
}

impl Ignore {
    /// `Dockerfile.dockerignore` beside the Dockerfile counts instead of the context's own.
    pub(crate) fn load(context: &Path, dockerfile: Option<&Path>) -> io::Result<Self> {
        let beside = dockerfile.map(|file| {
            let mut name = file.as_os_str().to_owned();
            name.push(".dockerignore");
            name.into()
        });
        for file in beside.into_iter().chain([context.join(".dockerignore")]) {
            match std::fs::read_to_string(&file) {
                Ok(text) => return Ok(Self::parse(&text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let message = format!("{}: {error}", file.display());
                    return Err(io::Error::new(error.kind(), message));
                }
            }
        }
        Ok(Self::default())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(str::trim);
        let rules = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (keeps, pattern) = match line.strip_prefix('!') {
                    Some(pattern) => (true, pattern.trim()),
                    None => (false, line),
                };
                Rule {
                    pattern: Pattern::new(pattern),
                    keeps,
                }
            })
            .filter(|rule| !rule.pattern.is_empty())
            .collect();
        Self { rules }
    }

    /// The last rule that matches the path or a folder that it is in decides.
    pub(crate) fn leaves_out(&self, path: &str) -> bool {
        let deciding = self
            .rules
            .iter()
            .rev()
            .find(|rule| rule.pattern.matches_or_contains(path));
        deciding.is_some_and(|rule| !rule.keeps)
    }

    /// Whether something below a folder that is left out may be kept all the same.
    pub(crate) fn has_exceptions(&self) -> bool {
        self.rules.iter().any(|rule| rule.keeps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_decides() {
        let ignore = Ignore::parse(
            "# comment\n\n*.md\n!README.md\n/target/\nnode_modules\n**/*.pyc\nlogs/*\n!logs/keep\n",
        );
        let cases = [
            ("a.md", true),
            ("README.md", false),
            ("docs/a.md", false),
            ("target", true),
            ("target/debug/x", true),
            ("src/target", false),
            ("node_modules/a/b", true),
            ("a/b/c.pyc", true),
            ("logs", false),
            ("logs/x", true),
            ("logs/keep/y", false),
        ];
        for (path, expected) in cases {
            assert_eq!(ignore.leaves_out(path), expected, "{path}");
        }
        assert!(ignore.has_exceptions());
    }

    #[test]
    fn everything_but_a_few_can_be_said() {
        let ignore = Ignore::parse("*\n!src\n!package.json");
        assert!(ignore.leaves_out("secret") && ignore.leaves_out("other/x"));
        assert!(!ignore.leaves_out("src/a/b") && !ignore.leaves_out("package.json"));
    }

    #[test]
    fn the_file_beside_the_dockerfile_wins() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".dockerignore"), "a").unwrap();
        let dockerfile = folder.path().join("Dev.Dockerfile");
        let load = || Ignore::load(folder.path(), Some(&dockerfile)).unwrap();
        assert!(load().leaves_out("a"));
        std::fs::write(folder.path().join("Dev.Dockerfile.dockerignore"), "b").unwrap();
        assert!(load().leaves_out("b") && !load().leaves_out("a"));
    }
}
