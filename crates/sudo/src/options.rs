//! The command line.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Run,
    Version,
    Help,
    Validate,
    List,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) action: Action,
    pub(crate) user: OsString,
    pub(crate) group: Option<OsString>,
    pub(crate) directory: Option<OsString>,
    pub(crate) keep_env: bool,
    pub(crate) keep_names: Vec<OsString>,
    pub(crate) set_home: bool,
    /// `-i`: as if the user had logged in.
    pub(crate) login: bool,
    /// `-s`: through a shell.
    pub(crate) shell: bool,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) command: Vec<OsString>,
}

impl Options {
    fn new() -> Self {
        Self {
            action: Action::Run,
            user: "root".into(),
            group: None,
            directory: None,
            keep_env: false,
            keep_names: Vec::new(),
            set_home: false,
            login: false,
            shell: false,
            variables: Vec::new(),
            command: Vec::new(),
        }
    }

    pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut options = Self::new();
        let mut args = args.peekable();
        let mut forget = false;
        while let Some(arg) = args.next_if(|arg| arg.as_bytes().starts_with(b"-") && arg.len() > 1)
        {
            if arg == "--" {
                break;
            }
            let bytes = arg.as_bytes();
            if let Some(long) = bytes.strip_prefix(b"--") {
                options.long(long, &mut args, &mut forget)?;
            } else {
                options.short(&bytes[1..], &mut args, &mut forget)?;
            }
        }
        while let Some(pair) = args.peek().and_then(|arg| variable(arg)) {
            options.variables.push(pair);
            args.next();
        }
        options.command = args.collect();
        if options.action == Action::Run
            && options.command.is_empty()
            && !options.login
            && !options.shell
        {
            if !forget {
                return Err("no command given".into());
            }
            options.action = Action::Validate;
        }
        Ok(options)
    }

    fn short(
        &mut self,
        mut flags: &[u8],
        args: &mut impl Iterator<Item = OsString>,
        forget: &mut bool,
    ) -> Result<(), String> {
        while let [flag, rest @ ..] = flags {
            flags = rest;
            match flag {
                b'E' => self.keep_env = true,
                b'H' => self.set_home = true,
                b'i' => self.login = true,
                b's' => self.shell = true,
                b'k' | b'K' => *forget = true,
                b'v' => self.action = Action::Validate,
                b'l' => self.action = Action::List,
                b'V' => self.action = Action::Version,
                b'h' => self.action = Action::Help,
                // No password is asked for, so how to ask makes no difference.
                b'n' | b'S' | b'A' | b'B' | b'P' => {}
                b'u' | b'g' | b'D' | b'p' | b'C' | b'T' | b'R' | b'U' => {
                    let value = if rest.is_empty() {
                        args.next()
                    } else {
                        Some(os(rest))
                    };
                    let value = value.ok_or_else(|| {
                        format!("option requires an argument -- '{}'", char::from(*flag))
                    })?;
                    return self.valued(*flag, value);
                }
                other => return Err(format!("invalid option -- '{}'", char::from(*other))),
            }
        }
        Ok(())
    }

    fn valued(&mut self, flag: u8, value: OsString) -> Result<(), String> {
        match flag {
            b'u' => self.user = value,
            b'g' => self.group = Some(value),
            b'D' => self.directory = Some(value),
            b'R' => return Err("changing the root directory is not supported: use chroot".into()),
            _ => {} // a prompt, a number of descriptors, a timeout: nothing to do
        }
        Ok(())
    }

    fn long(
        &mut self,
        option: &[u8],
        args: &mut impl Iterator<Item = OsString>,
        forget: &mut bool,
    ) -> Result<(), String> {
        let (name, value) = match option.iter().position(|byte| *byte == b'=') {
            Some(at) => (&option[..at], Some(os(&option[at + 1..]))),
            None => (option, None),
        };
        let flag = match name {
            b"user" => b'u',
            b"group" => b'g',
            b"chdir" => b'D',
            b"chroot" => b'R',
            b"prompt" => b'p',
            b"close-from" => b'C',
            b"command-timeout" => b'T',
            b"other-user" => b'U',
            b"preserve-env" => {
                match value {
                    None => self.keep_env = true,
                    Some(names) => self
                        .keep_names
                        .extend(names.as_bytes().split(|b| *b == b',').map(os)),
                }
                return Ok(());
            }
            b"set-home" => b'H',
            b"login" => b'i',
            b"shell" => b's',
            b"non-interactive" => b'n',
            b"stdin" => b'S',
            b"askpass" => b'A',
            b"bell" => b'B',
            b"preserve-groups" => b'P',
            b"reset-timestamp" | b"remove-timestamp" => b'k',
            b"validate" => b'v',
            b"list" => b'l',
            b"version" => b'V',
            b"help" => b'h',
            _ => {
                return Err(format!(
                    "unrecognized option '--{}'",
                    String::from_utf8_lossy(name)
                ));
            }
        };
        match value {
            Some(value) => self.valued(flag, value),
            None => self.short(&[flag], args, forget),
        }
    }
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

/// `NAME=value` before the command.
fn variable(arg: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = arg.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&bytes[..at], &bytes[at + 1..]);
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let valid = !name.is_empty() && name.iter().all(word) && !name[0].is_ascii_digit();
    valid.then(|| (os(name), os(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_end_at_the_command() {
        let options = parse("-nE -u user A=1 B= ls -l --user=x").unwrap();
        assert!(options.keep_env);
        assert_eq!(options.user, "user");
        assert_eq!(
            options.variables,
            [("A".into(), "1".into()), ("B".into(), "".into())]
        );
        assert_eq!(options.command, ["ls", "-l", "--user=x"]);
    }

    #[test]
    fn values_may_be_attached_or_follow() {
        for line in [
            "-uuser id",
            "-u user id",
            "--user user id",
            "--user=user id",
            "-nu user -- id",
        ] {
            let options = parse(line).unwrap();
            assert_eq!(
                (options.user.to_str(), options.command.len()),
                (Some("user"), 1),
                "{line}"
            );
        }
    }

    #[test]
    fn without_a_command_something_else_must_be_asked_for() {
        assert!(parse("").is_err());
        assert!(parse("-n").is_err());
        assert_eq!(parse("-k").unwrap().action, Action::Validate);
        assert_eq!(parse("-v").unwrap().action, Action::Validate);
        assert_eq!(parse("-i").unwrap().action, Action::Run);
        assert_eq!(parse("--version").unwrap().action, Action::Version);
    }

    #[test]
    fn unknown_options_are_refused() {
        assert!(parse("-z ls").is_err());
        assert!(parse("--zz ls").is_err());
        assert!(parse("-u").is_err());
    }

    #[test]
    fn names_can_be_kept_one_by_one() {
        let options = parse("--preserve-env=A,B env").unwrap();
        assert_eq!(options.keep_names, ["A", "B"]);
        assert!(!options.keep_env);
    }
}
