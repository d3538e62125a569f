//! What to run, as the C strings and numbers that the forked child needs.

use std::{collections::BTreeMap, ffi::CString, os::unix::ffi::OsStrExt, path::Path};

use rustix::{
    fs::{Gid, Uid},
    process::Rlimit,
};

use crate::{proto::process::ProcessConfig, sftp, users::User};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no command given")]
    Empty,
    #[error("{0} holds a NUL character")]
    Nul(&'static str),
    #[error("exec: {0:?}: executable file not found in $PATH")]
    NotFound(String),
}

pub(crate) struct Command {
    /// Tried in this order.
    pub(super) programs: Vec<CString>,
    pub(super) args: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: CString,
    pub(super) uid: Uid,
    pub(super) gid: Gid,
    pub(super) groups: Vec<Gid>,
    /// What envd was started with; it raised its own.
    pub(super) descriptors: Rlimit,
}

impl Command {
    /// Nothing of envd's own environment is inherited, except its `PATH`.
    pub(crate) fn new(
        config: &ProcessConfig,
        user: &User,
        cwd: &Path,
        path: &str,
        global_env: BTreeMap<String, String>,
        descriptors: Rlimit,
    ) -> Result<Self, Error> {
        let path = &with_own_programs(&user.home, global_env.get("PATH").map_or(path, |p| p));
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), path.clone()),
            ("HOME".to_owned(), user.home.to_string_lossy().into_owned()),
            ("USER".to_owned(), user.name.clone()),
            ("LOGNAME".to_owned(), user.name.clone()),
        ]);
        env.extend(global_env);
        env.insert("PATH".to_owned(), path.clone());
        env.extend(config.envs.clone());

        // Seen by the child this is envd's program, which every sandbox has.
        let (program, name) = if config.cmd == sftp::COMMAND {
            ("/proc/self/exe", sftp::PROGRAM)
        } else {
            (config.cmd.as_str(), config.cmd.as_str())
        };
        let programs = programs(program, env.get("PATH").map_or(path, String::as_str))?;
        let args = std::iter::once(name)
            .chain(config.args.iter().map(String::as_str))
            .map(|arg| CString::new(arg).map_err(|_| Error::Nul("an argument")))
            .collect::<Result<_, _>>()?;
        let env = env
            .into_iter()
            .map(|(name, value)| {
                CString::new(format!("{name}={value}")).map_err(|_| Error::Nul("a variable"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            programs,
            args,
            env,
            cwd: CString::new(cwd.as_os_str().as_bytes()).map_err(|_| Error::Nul("cwd"))?,
            uid: Uid::from_raw(user.uid),
            gid: Gid::from_raw(user.gid),
            groups: user.groups.iter().copied().map(Gid::from_raw).collect(),
            descriptors,
        })
    }
}

/// What `pip install --user` and relatives made is found as by a login shell, whose `~/.profile` adds
/// the same folders: a program must not be there for a shell alone.
fn with_own_programs(home: &Path, path: &str) -> String {
    let own = [".local/bin", "bin"].map(|folder| home.join(folder));
    let own = own.iter().filter_map(|folder| folder.to_str());
    let mut all: Vec<&str> = own
        .filter(|folder| !path.split(':').any(|known| known == *folder))
        .filter(|folder| Path::new(folder).is_dir())
        .collect();
    if all.is_empty() {
        return path.to_owned();
    }
    all.push(path);
    all.join(":")
}

fn programs(cmd: &str, path: &str) -> Result<Vec<CString>, Error> {
    if cmd.is_empty() {
        return Err(Error::Empty);
    }
    let nul = |_| Error::Nul("the command");
    if cmd.contains('/') {
        return Ok(vec![CString::new(cmd).map_err(nul)?]);
    }
    let mut found = Vec::new();
    for directory in path
        .split(':')
        .filter(|directory| directory.starts_with('/'))
    {
        let candidate = Path::new(directory).join(cmd);
        if candidate.is_file() {
            found.push(CString::new(candidate.as_os_str().as_bytes()).map_err(nul)?);
        }
    }
    if found.is_empty() {
        Err(Error::NotFound(cmd.to_owned()))
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User {
            name: "u".into(),
            uid: 7,
            gid: 8,
            home: "/home/u".into(),
            groups: vec![8, 9],
        }
    }

    #[test]
    fn later_environments_win_and_nothing_is_inherited() {
        let config = ProcessConfig {
            cmd: "/bin/true".into(),
            envs: BTreeMap::from([("B".into(), "request".into())]),
            ..Default::default()
        };
        let global = BTreeMap::from([
            ("B".to_owned(), "global".to_owned()),
            ("USER".to_owned(), "renamed".to_owned()),
        ]);
        let limit = Rlimit {
            current: None,
            maximum: None,
        };
        let command =
            Command::new(&config, &user(), Path::new("/"), "/bin", global, limit).unwrap();
        let env: Vec<_> = command.env.iter().map(|e| e.to_str().unwrap()).collect();
        assert_eq!(
            env,
            [
                "B=request",
                "HOME=/home/u",
                "LOGNAME=u",
                "PATH=/bin",
                "USER=renamed"
            ]
        );
    }

    #[test]
    fn programs_that_the_user_installed_are_found_as_by_a_login_shell() {
        let home = tempfile::tempdir().unwrap();
        let own = |folder: &str| home.path().join(folder).display().to_string();
        assert_eq!(with_own_programs(home.path(), "/bin"), "/bin");
        std::fs::create_dir_all(home.path().join(".local/bin")).unwrap();
        let local = own(".local/bin");
        let path = with_own_programs(home.path(), "/bin");
        assert_eq!(path, format!("{local}:/bin"));
        assert_eq!(
            with_own_programs(home.path(), &path),
            path,
            "once is enough"
        );
        std::fs::create_dir(home.path().join("bin")).unwrap();
        let path = with_own_programs(home.path(), "/bin");
        assert_eq!(path, format!("{local}:{}:/bin", own("bin")));
    }

    #[test]
    fn the_sftp_server_is_this_program_under_another_name() {
        let config = ProcessConfig {
            cmd: sftp::COMMAND.into(),
            ..Default::default()
        };
        let limit = Rlimit {
            current: None,
            maximum: None,
        };
        let env = BTreeMap::new();
        let command = Command::new(&config, &user(), Path::new("/"), "/bin", env, limit).unwrap();
        assert_eq!(command.programs, [c"/proc/self/exe".to_owned()]);
        assert_eq!(command.args, [c"soulbox-sftp-server".to_owned()]);
    }

    #[test]
    fn bare_names_are_looked_up_in_absolute_directories_only() {
        assert!(programs("sh", "relative:/usr/bin:/bin").is_ok());
        assert!(matches!(
            programs("no-such-program", "/bin"),
            Err(Error::NotFound(_))
        ));
        assert!(matches!(programs("", "/bin"), Err(Error::Empty)));
        assert!(matches!(programs("a/\0", "/bin"), Err(Error::Nul(_))));
    }
}
