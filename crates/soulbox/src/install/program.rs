//! The program itself: replaced in one step, the former one kept.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufReader, Read},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{
    layout::Layout,
    unfinished::{Stage, Unfinished},
};

const MODE: u32 = 0o755;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// There was none.
    First,
    /// It is this one already.
    Same,
    Replaced,
}

/// What [`place`] would do.
pub(super) fn compare(layout: &Layout, source: &Path) -> Result<Placed> {
    let program = layout.program();
    if !program.exists() {
        return Ok(Placed::First);
    }
    let same = same_content(source, &program)
        .with_context(|| format!("could not compare with {}", program.display()))?;
    Ok(if same { Placed::Same } else { Placed::Replaced })
}

pub(super) fn place(layout: &Layout, source: &Path, unfinished: &Unfinished) -> Result<Placed> {
    let program = layout.program();
    let placed = compare(layout, source)?;
    if placed == Placed::Same {
        return Ok(placed);
    }
    // One that an upgrade was killed with has never served: it is nothing to go back to.
    let upgrading = matches!(
        unfinished.read()?,
        Some(Stage::Replacing | Stage::DatabaseKept)
    );
    if placed == Placed::Replaced && !upgrading {
        copy(&program, &layout.previous())?;
        unfinished.write(Stage::Replacing)?;
    }
    copy(source, &program)?;
    Ok(placed)
}

/// Exchanges the program and the previous one.
pub(super) fn exchange(layout: &Layout) -> Result<()> {
    let (program, previous) = (layout.program(), layout.previous());
    renameat_with(CWD, &program, CWD, &previous, RenameFlags::EXCHANGE)
        .map_err(io::Error::from)
        .with_context(|| {
            format!(
                "could not exchange {} and {}",
                program.display(),
                previous.display()
            )
        })?;
    for path in [program, previous] {
        if let Some(folder) = path.parent() {
            soulbox_durable::sync_folder(folder)?;
        }
    }
    Ok(())
}

pub(super) fn inode(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).with_context(|| format!("could not find {}", path.display()))?;
    Ok(found.ino())
}

/// Whether this process runs the file of this name, and not one that it has replaced.
pub(super) fn is_run_by(program: &Path, pid: u32) -> bool {
    let (Ok(running), Ok(file)) = (
        fs::metadata(format!("/proc/{pid}/exe")),
        fs::metadata(program),
    ) else {
        return false;
    };
    (running.dev(), running.ino()) == (file.dev(), file.ino())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let cannot = || format!("could not write {}", to.display());
    let folder = to.parent().with_context(cannot)?;
    soulbox_durable::make_folder(folder, 0o755).with_context(cannot)?;
    let unfinished = unfinished_copy(to)?;
    // One that a killed run has left may be run by nobody.
    soulbox_durable::remove(&unfinished).with_context(cannot)?;
    let mut source =
        File::open(from).with_context(|| format!("could not read {}", from.display()))?;
    let mut target = File::create(&unfinished).with_context(cannot)?;
    io::copy(&mut source, &mut target).with_context(cannot)?;
    target
        .set_permissions(Permissions::from_mode(MODE))
        .with_context(cannot)?;
    target.sync_all().with_context(cannot)?;
    drop(target);
    soulbox_durable::rename(&unfinished, to).with_context(cannot)
}

/// Where it is written before it has its name.
pub(super) fn unfinished_copy(program: &Path) -> Result<PathBuf> {
    let folder = program.parent().context("a program is in a folder")?;
    Ok(folder.join(".soulbox.new"))
}

fn same_content(left: &Path, right: &Path) -> io::Result<bool> {
    let (left, right) = (File::open(left)?, File::open(right)?);
    if left.metadata()?.len() != right.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (BufReader::new(left), BufReader::new(right));
    let (mut one, mut other) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let length = left.read(&mut one)?;
        if length == 0 {
            return Ok(true);
        }
        right.read_exact(&mut other[..length])?;
        if one[..length] != other[..length] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PlaceArgs;

    fn layout(root: &Path) -> Layout {
        let place = PlaceArgs {
            prefix: "/usr/local".into(),
            root: root.into(),
            dry_run: false,
        };
        Layout::new(&place).unwrap()
    }

    struct Here {
        root: tempfile::TempDir,
        layout: Layout,
        unfinished: Unfinished,
    }

    impl Here {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let layout = layout(root.path());
            let unfinished = Unfinished::of(&layout);
            Self {
                root,
                layout,
                unfinished,
            }
        }

        fn version(&self, content: &str) -> PathBuf {
            let path = self.root.path().join(format!("build-{content}"));
            fs::write(&path, content).unwrap();
            path
        }

        fn place(&self, content: &str) -> Placed {
            place(&self.layout, &self.version(content), &self.unfinished).unwrap()
        }

        fn installed(&self) -> String {
            fs::read_to_string(self.layout.program()).unwrap()
        }

        fn previous(&self) -> String {
            fs::read_to_string(self.layout.previous()).unwrap()
        }
    }

    #[test]
    fn the_former_program_is_kept_and_the_same_again_changes_nothing() {
        let here = Here::new();
        assert_eq!(here.place("a"), Placed::First);
        assert_eq!(here.unfinished.read().unwrap(), None);
        assert_eq!(here.place("a"), Placed::Same);
        assert!(!here.layout.previous().exists());
        assert_eq!(here.place("b"), Placed::Replaced);
        assert_eq!(
            (here.installed(), here.previous()),
            ("b".into(), "a".into())
        );
        let mode = fs::metadata(here.layout.program()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, MODE);
    }

    #[test]
    fn a_program_that_never_served_is_nothing_to_go_back_to() {
        let here = Here::new();
        here.place("a");
        // Killed after this one was put there:
        here.place("b");
        assert_eq!(here.unfinished.read().unwrap(), Some(Stage::Replacing));
        here.place("c");
        assert_eq!(
            (here.installed(), here.previous()),
            ("c".into(), "a".into())
        );
        // That one served.
        here.unfinished.remove().unwrap();
        here.place("d");
        assert_eq!(
            (here.installed(), here.previous()),
            ("d".into(), "c".into())
        );
    }

    #[test]
    fn what_a_killed_copy_has_left_is_in_nobodys_way() {
        let here = Here::new();
        here.place("a");
        let bin = here.layout.program();
        fs::write(bin.with_file_name(".soulbox.new"), "half").unwrap();
        here.place("b");
        assert_eq!(here.installed(), "b");
        assert_eq!(fs::read_dir(bin.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_exchange_can_be_exchanged_again() {
        let here = Here::new();
        here.place("a");
        here.place("b");
        let (new, old) = (
            inode(&here.layout.program()).unwrap(),
            inode(&here.layout.previous()).unwrap(),
        );
        exchange(&here.layout).unwrap();
        assert_eq!(here.installed(), "a");
        assert_eq!(inode(&here.layout.program()).unwrap(), old);
        exchange(&here.layout).unwrap();
        assert_eq!(here.installed(), "b");
        assert_eq!(inode(&here.layout.program()).unwrap(), new);
    }

    #[test]
    fn files_of_the_same_length_are_compared_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let mut content = vec![7_u8; 200_000];
        fs::write(&one, &content).unwrap();
        fs::write(&other, &content).unwrap();
        assert!(same_content(&one, &other).unwrap());
        content[199_999] = 8;
        fs::write(&other, &content).unwrap();
        assert!(!same_content(&one, &other).unwrap());
    }

    #[test]
    fn we_run_our_own_file_and_no_copy_of_it() {
        let own = std::env::current_exe().unwrap();
        assert!(is_run_by(&own, std::process::id()));
        assert!(!is_run_by(Path::new("/bin/sh"), std::process::id()));
    }
}
