//! What a person types to call this very program.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

const NAME: &str = "soulbox";

/// Its name where the shell finds this file by it, else the path that it was started with.
pub(crate) fn callable() -> String {
    let Ok(own) = std::env::current_exe() else {
        return NAME.to_owned();
    };
    let started_as = std::env::args_os().next().unwrap_or_default();
    let search = std::env::var_os("PATH").unwrap_or_default();
    name(&own, Path::new(&started_as), &search)
}

fn name(own: &Path, started_as: &Path, search: &OsStr) -> String {
    // The shell takes the first file of this name, whatever is in it.
    let found = std::env::split_paths(search)
        .map(|folder| folder.join(NAME))
        .find(|file| file.is_file());
    if found.is_some_and(|found| is_same(&found, own)) {
        return NAME.to_owned();
    }
    let is_path = started_as.components().nth(1).is_some();
    let path: &Path = if is_path && is_same(started_as, own) {
        started_as
    } else {
        own
    };
    quoted(path)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> { path.canonicalize().ok() };
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// For a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@%".contains(&byte);
    if path.bytes().all(plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn the_name_alone_is_told_only_where_a_shell_finds_this_program_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (built, linked, foreign) = (folder("built"), folder("linked"), folder("foreign"));
        let own = built.join(NAME);
        fs::write(&own, "this").unwrap();
        symlink(&own, linked.join(NAME)).unwrap();
        fs::write(foreign.join(NAME), "another").unwrap();
        let shown = |search: &[&Path]| {
            let search = std::env::join_paths(search).unwrap();
            name(&own, &own, &search)
        };
        let path = own.display().to_string();
        assert_eq!(shown(&[&built]), NAME);
        assert_eq!(shown(&[&dir.path().join("missing"), &linked]), NAME);
        assert_eq!(shown(&[&foreign, &built]), path);
        assert_eq!(shown(&[]), path);
    }

    #[test]
    fn it_is_called_as_it_was_started_if_that_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("program"), dir.path().join("it's"));
        fs::write(&own, "this").unwrap();
        symlink(&own, &link).unwrap();
        let shown = |started_as: &Path| name(&own, started_as, OsStr::new(""));
        let quoted = format!("'{}/it'\\''s'", dir.path().display());
        assert_eq!(shown(&link), quoted);
        // A bare name or one that leads elsewhere by now says nothing.
        for other in ["program", "./elsewhere"] {
            assert_eq!(shown(Path::new(other)), own.display().to_string());
        }
    }
}
