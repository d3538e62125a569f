//! Which program to run, and becoming who runs it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::PermissionsExt,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    process::{Gid, Uid, geteuid, getgid, getuid, umask},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{
    account::{Account, Accounts},
    environment::{SECURE_PATH, environment},
    options::Options,
};

struct Program {
    path: PathBuf,
    argv0: OsString,
    args: Vec<OsString>,
}

/// Comes back only when the command could not be started.
pub(crate) fn launch(options: &Options) -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("must be owned by uid 0 and have the setuid bit set".into());
    }
    let accounts = Accounts::load();
    let shown = |name: &OsStr| name.to_string_lossy().into_owned();
    let target = accounts
        .user(&options.user)
        .ok_or_else(|| format!("unknown user {}", shown(&options.user)))?;
    let gid = match &options.group {
        None => target.gid,
        Some(group) => accounts
            .group(group)
            .ok_or_else(|| format!("unknown group {}", shown(group)))?,
    };
    let caller = accounts
        .user_by_id(getuid().as_raw())
        .unwrap_or_else(|| Account {
            name: format!("#{}", getuid().as_raw()).into(),
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            home: "/".into(),
            shell: "/bin/sh".into(),
        });

    let program = program(options, &caller, &target)?;
    let mut line = program.path.clone().into_os_string();
    for arg in &program.args {
        line.push(" ");
        line.push(arg);
    }
    let env = environment(options, std::env::vars_os(), &caller, &target, line);

    become_user(&accounts, &target, gid).map_err(|e| format!("unable to change user: {e}"))?;
    let directory = options
        .directory
        .clone()
        .or_else(|| options.login.then(|| target.home.clone()));
    if let Some(directory) = directory
        && let Err(error) = std::env::set_current_dir(&directory)
    {
        let message = format!(
            "unable to change directory to {}: {error}",
            shown(&directory)
        );
        if options.directory.is_some() {
            return Err(message);
        }
        eprintln!("sudo: {message}");
    }
    let error = Command::new(&program.path)
        .arg0(&program.argv0)
        .args(&program.args)
        .env_clear()
        .envs(env)
        .exec();
    Err(format!(
        "unable to execute {}: {error}",
        program.path.display()
    ))
}

fn program(options: &Options, caller: &Account, target: &Account) -> Result<Program, String> {
    if options.login || options.shell {
        let shell = if options.login {
            target.shell.clone()
        } else {
            std::env::var_os("SHELL")
                .filter(|s| !s.is_empty())
                .unwrap_or(caller.shell.clone())
        };
        let name = Path::new(&shell).file_name().unwrap_or(&shell).to_owned();
        let mut argv0 = OsString::from(if options.login { "-" } else { "" });
        argv0.push(name);
        let args = if options.command.is_empty() {
            Vec::new()
        } else {
            vec!["-c".into(), shell_line(&options.command)]
        };
        return Ok(Program {
            path: shell.into(),
            argv0,
            args,
        });
    }
    let [command, args @ ..] = options.command.as_slice() else {
        return Err("no command given".into());
    };
    let path =
        find(command).ok_or_else(|| format!("{}: command not found", command.to_string_lossy()))?;
    Ok(Program {
        path,
        argv0: command.clone(),
        args: args.to_vec(),
    })
}

fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Path::new(command).exists().then(|| command.into());
    }
    SECURE_PATH
        .split(':')
        .map(|directory| Path::new(directory).join(command))
        .find(|path| {
            path.metadata()
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// One line for `sh -c`, with everything quoted that a shell could read otherwise.
fn shell_line(words: &[OsString]) -> OsString {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        for byte in word.as_bytes() {
            let plain = byte.is_ascii_alphanumeric() || b"_-$".contains(byte) || *byte >= 0x80;
            if !plain {
                line.push(b'\\');
            }
            line.push(*byte);
        }
    }
    OsString::from_vec(line)
}

fn become_user(accounts: &Accounts, target: &Account, gid: u32) -> rustix::io::Result<()> {
    let mut groups = accounts.groups_of(target);
    if !groups.contains(&gid) {
        groups.push(gid);
    }
    let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(target.uid), Gid::from_raw(gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    // Like the real one: at least 022, and whatever more the caller had.
    let theirs = umask(rustix::fs::Mode::from_raw_mode(0o022));
    umask(theirs | rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_lines_keep_words_apart() {
        let words = ["echo".into(), "a b;c".into(), "$HOME".into(), "é".into()];
        assert_eq!(shell_line(&words), "echo a\\ b\\;c $HOME é");
    }

    #[test]
    fn commands_are_found_on_the_secure_path() {
        assert!(find("sh".as_ref()).is_some_and(|path| path.is_absolute()));
        assert_eq!(find("/bin/sh".as_ref()), Some("/bin/sh".into()));
        assert_eq!(find("no-such-command".as_ref()), None);
    }
}
