//! What the command sees: little of the caller's environment, unless asked.

use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStrExt};

use crate::{account::Account, options::Options};

pub(crate) const SECURE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const KEPT: &[&str] = &["TERM", "COLORTERM", "DISPLAY", "LANG", "LANGUAGE"];

pub(crate) type Environment = BTreeMap<OsString, OsString>;

pub(crate) fn environment(
    options: &Options,
    theirs: impl Iterator<Item = (OsString, OsString)>,
    caller: &Account,
    target: &Account,
    command: OsString,
) -> Environment {
    let everything = options.keep_env && !options.login;
    let mut env: Environment = theirs
        .filter(|(name, _)| {
            everything
                || KEPT.iter().any(|kept| name == kept)
                || name.as_bytes().starts_with(b"LC_")
                || options.keep_names.contains(name)
        })
        .collect();
    let set = |env: &mut Environment, name: &str, value: OsString| {
        env.insert(name.into(), value);
    };
    if !everything || options.set_home || !env.contains_key(std::ffi::OsStr::new("HOME")) {
        set(&mut env, "HOME", target.home.clone());
    }
    if !options.keep_names.iter().any(|name| name == "PATH") {
        set(&mut env, "PATH", SECURE_PATH.into());
    }
    set(&mut env, "USER", target.name.clone());
    set(&mut env, "LOGNAME", target.name.clone());
    set(&mut env, "SHELL", target.shell.clone());
    set(&mut env, "SUDO_COMMAND", command);
    set(&mut env, "SUDO_USER", caller.name.clone());
    set(&mut env, "SUDO_UID", caller.uid.to_string().into());
    set(&mut env, "SUDO_GID", caller.gid.to_string().into());
    env.extend(options.variables.iter().cloned());
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, uid: u32) -> Account {
        Account {
            name: name.into(),
            uid,
            gid: uid,
            home: format!("/home/{name}").into(),
            shell: "/bin/sh".into(),
        }
    }

    fn of(line: &str) -> Environment {
        let options = Options::parse(line.split(' ').map(OsString::from)).unwrap();
        let theirs = [
            ("SECRET", "s"),
            ("TERM", "t"),
            ("LC_ALL", "C"),
            ("PATH", "/evil"),
            ("HOME", "/h"),
        ];
        let theirs = theirs.iter().map(|(k, v)| (k.into(), v.into()));
        environment(
            &options,
            theirs,
            &account("user", 1000),
            &account("root", 0),
            "cmd".into(),
        )
    }

    fn get<'a>(env: &'a Environment, name: &str) -> Option<&'a str> {
        env.get(std::ffi::OsStr::new(name)).and_then(|v| v.to_str())
    }

    #[test]
    fn the_callers_environment_does_not_pass() {
        let env = of("env");
        assert_eq!(get(&env, "SECRET"), None);
        assert_eq!(
            (get(&env, "TERM"), get(&env, "LC_ALL")),
            (Some("t"), Some("C"))
        );
        assert_eq!(
            (get(&env, "PATH"), get(&env, "HOME")),
            (Some(SECURE_PATH), Some("/home/root"))
        );
        assert_eq!(
            (get(&env, "SUDO_USER"), get(&env, "SUDO_UID")),
            (Some("user"), Some("1000"))
        );
    }

    #[test]
    fn it_passes_when_asked_but_the_path_stays_secure() {
        let env = of("-E X=1 env");
        assert_eq!(
            (get(&env, "SECRET"), get(&env, "HOME")),
            (Some("s"), Some("/h"))
        );
        assert_eq!(
            (get(&env, "PATH"), get(&env, "X")),
            (Some(SECURE_PATH), Some("1"))
        );
        assert_eq!(get(&of("-EH env"), "HOME"), Some("/home/root"));
        assert_eq!(get(&of("--preserve-env=SECRET env"), "SECRET"), Some("s"));
        assert_eq!(get(&of("-E -i env"), "SECRET"), None);
    }
}
