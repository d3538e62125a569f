//! What would be done, before anything is.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Names, Result, resolver, store};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A file that is ours alone.
    Add { path: PathBuf, content: String },
    /// Lines in front of a file that others write.
    Prepend { path: PathBuf, lines: String },
}

impl Change {
    pub fn path(&self) -> &Path {
        match self {
            Self::Add { path, .. } | Self::Prepend { path, .. } => path,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub program: String,
    pub arguments: Vec<String>,
}

impl Command {
    pub(crate) fn new(program: impl Into<String>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.program)?;
        self.arguments
            .iter()
            .try_for_each(|word| write!(f, " {word}"))
    }
}

/// Changes that belong together, and the programs that make them count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub what: String,
    pub changes: Vec<Change>,
    pub after: Vec<Command>,
    /// After they are undone.
    pub after_undo: Vec<Command>,
    /// The name server that the change relies on.
    pub relies_on: Option<std::net::SocketAddr>,
}

/// One half of it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    Ca,
    Names,
}

#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    pub names: &'a Names,
    /// The CA's certificate, where the server has one of its own.
    pub ca: Option<&'a str>,
    pub only: Option<Only>,
    /// What the resolver says of a name below the domain now.
    pub resolved: &'a [std::net::IpAddr],
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub parts: Vec<Part>,
    pub notes: Vec<String>,
}

impl Plan {
    /// `root` is `/`, but for tests.
    pub fn make(root: &Path, wanted: &Wanted<'_>) -> Result<Self> {
        let mut plan = Self::default();
        let names = wanted.names;
        match wanted.ca {
            Some(ca) if wanted.only != Some(Only::Names) => {
                plan.parts.push(store::part(root, &names.domain, ca)?);
            }
            None if wanted.only != Some(Only::Names) => plan
                .notes
                .push("the server's certificate is not of its own CA: nothing to trust".to_owned()),
            _ => {}
        }
        if wanted.only == Some(Only::Ca) {
            return Ok(plan);
        }
        if wanted.resolved.contains(&names.address)
            || (names.is_here() && wanted.resolved.iter().any(std::net::IpAddr::is_loopback))
        {
            plan.notes.push(format!(
                "*.{} is found by this machine's resolver already",
                names.domain
            ));
            return Ok(plan);
        }
        let (part, notes) = resolver::part(root, names)?;
        plan.parts.push(part);
        plan.notes.extend(notes);
        Ok(plan)
    }

    /// For people: every file with its content, every program with its arguments.
    pub fn describe(&self) -> String {
        let mut lines = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            lines.push(format!("{}. {}", index + 1, part.what));
            for change in &part.changes {
                let (verb, content) = match change {
                    Change::Add { content, .. } => ("write", content),
                    Change::Prepend { lines, .. } => ("put in front of", lines),
                };
                lines.push(format!("   {verb} {}", change.path().display()));
                if !content.starts_with("-----BEGIN") {
                    lines.extend(content.lines().map(|line| format!("     | {line}")));
                }
            }
            lines.extend(part.after.iter().map(|command| format!("   run {command}")));
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";

    fn debian() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["etc/ssl/certs", "usr/sbin"] {
            fs_err::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs_err::write(root.path().join("usr/sbin/update-ca-certificates"), "").unwrap();
        fs_err::write(
            root.path().join("etc/resolv.conf"),
            "nameserver 192.0.2.1\n",
        )
        .unwrap();
        root
    }

    fn names() -> Names {
        let dns = "127.0.83.66:53".parse().ok();
        Names::of("sbx.localhost", 3443, [127, 0, 0, 1].into(), dns, true).unwrap()
    }

    fn wanted<'a>(names: &'a Names, resolved: &'a [std::net::IpAddr]) -> Wanted<'a> {
        Wanted {
            names,
            ca: Some(CA),
            only: None,
            resolved,
        }
    }

    #[test]
    fn a_plan_says_everything_that_it_would_do() {
        let (root, names) = (debian(), names());
        let plan = Plan::make(root.path(), &wanted(&names, &[])).unwrap();
        let text = plan.describe();
        for part in [
            "write /usr/local/share/ca-certificates/soulbox-sbx.localhost.crt",
            "run /usr/sbin/update-ca-certificates",
            "put in front of /etc/resolv.conf",
            "     | nameserver 127.0.83.66",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn what_is_found_already_is_left_alone() {
        let (root, names) = (debian(), names());
        let found = [[127, 0, 0, 1].into()];
        let plan = Plan::make(root.path(), &wanted(&names, &found)).unwrap();
        assert_eq!((plan.parts.len(), plan.notes.len()), (1, 1));
        let only = Wanted {
            only: Some(Only::Names),
            ..wanted(&names, &found)
        };
        assert_eq!(Plan::make(root.path(), &only).unwrap().parts, []);
    }

    #[test]
    fn a_system_without_a_known_store_is_told_so() {
        let (root, names) = (tempfile::tempdir().unwrap(), names());
        let refused = Plan::make(root.path(), &wanted(&names, &[])).unwrap_err();
        assert!(
            refused.hint().unwrap().contains("ca-certificates"),
            "{refused}"
        );
    }

    #[test]
    fn each_family_has_its_own_store() {
        let names = names();
        for (folder, program, expected) in [
            (
                "etc/pki/ca-trust/source/anchors",
                "update-ca-trust",
                "/etc/pki/ca-trust/source/anchors/soulbox-sbx.localhost.pem",
            ),
            (
                "etc/ca-certificates/trust-source/anchors",
                "update-ca-trust",
                "/etc/ca-certificates/trust-source/anchors/soulbox-sbx.localhost.pem",
            ),
            (
                "etc/pki/trust/anchors",
                "update-ca-certificates",
                "/etc/pki/trust/anchors/soulbox-sbx.localhost.pem",
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            fs_err::create_dir_all(root.path().join(folder)).unwrap();
            fs_err::create_dir_all(root.path().join("usr/bin")).unwrap();
            fs_err::write(root.path().join("usr/bin").join(program), "").unwrap();
            let only = Wanted {
                only: Some(Only::Ca),
                ..wanted(&names, &[])
            };
            let plan = Plan::make(root.path(), &only).unwrap();
            assert_eq!(plan.parts[0].changes[0].path(), Path::new(expected));
            assert_eq!(
                plan.parts[0].after[0].program,
                format!("/usr/bin/{program}")
            );
        }
    }
}
