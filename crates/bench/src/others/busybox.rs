//! One static program, as a root directory and as an image: nothing is pulled, and everybody
//! executes the same bytes.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::program::find;
use crate::Failure;

/// What of busybox is called by name.
const NAMES: [&str; 4] = ["echo", "sh", "sleep", "true"];

/// A busybox that needs no library.
#[derive(Debug, Clone)]
pub(super) struct Busybox(PathBuf);

impl Busybox {
    pub(super) fn find() -> Result<Self, Failure> {
        let advice = "install the package busybox-static";
        let path = find("busybox").map_err(|failure| Failure(format!("{failure}: {advice}")))?;
        match is_static(&path) {
            Ok(true) => Ok(Self(path)),
            Ok(false) => Err(Failure(format!(
                "{} needs libraries: {advice}",
                path.display()
            ))),
            Err(error) => Err(Failure(format!("{}: {error}", path.display()))),
        }
    }

    /// A root directory with nothing else in it.
    pub(super) fn root(&self, folder: &Path) -> Result<(), Failure> {
        let make = || {
            // Mount points are made here: a runtime that finds them missing may make them.
            for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
                fs::create_dir_all(folder.join(name))?;
            }
            let program = folder.join("bin/busybox");
            fs::copy(&self.0, &program)?;
            fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
            NAMES
                .iter()
                .filter(|name| !folder.join("bin").join(name).exists())
                .try_for_each(|name| symlink("busybox", folder.join("bin").join(name)))
        };
        make().map_err(|error: io::Error| Failure(format!("{}: {error}", folder.display())))
    }

    /// The same as an archive for `docker import`.
    pub(super) fn archive(&self, file: &Path) -> Result<(), Failure> {
        let write = || {
            let mut archive = tar::Builder::new(File::create(file)?);
            let mut program = tar::Header::new_gnu();
            program.set_size(fs::metadata(&self.0)?.len());
            program.set_mode(0o755);
            program.set_cksum();
            archive.append_data(&mut program, "bin/busybox", File::open(&self.0)?)?;
            for name in NAMES {
                let mut link = tar::Header::new_gnu();
                link.set_entry_type(tar::EntryType::Symlink);
                link.set_size(0);
                link.set_mode(0o777);
                archive.append_link(&mut link, format!("bin/{name}"), "busybox")?;
            }
            archive.into_inner()?.sync_all()
        };
        write().map_err(|error: io::Error| Failure(format!("{}: {error}", file.display())))
    }
}

/// Whether the program's headers name no interpreter, the loader of shared libraries.
fn is_static(program: &Path) -> io::Result<bool> {
    const INTERPRETER: u32 = 3;
    let mut bytes = Vec::new();
    File::open(program)?.take(8192).read_to_end(&mut bytes)?;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::Error::other("not a 64-bit little-endian program"));
    }
    let number = |at: usize, length: usize| {
        let field = bytes.get(at..at + length)?;
        let digits = field.iter().rev();
        Some(digits.fold(0_usize, |value, byte| value << 8 | usize::from(*byte)))
    };
    let table = || Some((number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?));
    let (start, size, count) = table().ok_or_else(|| io::Error::other("cut off"))?;
    let kinds = (0..count).map(|entry| number(start.checked_add(entry * size)?, 4));
    Ok(!kinds
        .into_iter()
        .any(|kind| kind == Some(INTERPRETER as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_shared_libraries_is_told_from_a_static_one() {
        assert!(!is_static(&std::env::current_exe().unwrap()).unwrap());
        if let Ok(Busybox(path)) = Busybox::find() {
            assert!(is_static(&path).unwrap());
        }
        assert!(is_static(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn the_root_and_the_image_hold_the_program_under_its_names() {
        let Ok(busybox) = Busybox::find() else {
            eprintln!("skipped: no static busybox");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        busybox.root(&root).unwrap();
        busybox.root(&root).unwrap();
        assert_eq!(
            fs::read_link(root.join("bin/echo")).unwrap(),
            Path::new("busybox")
        );
        let archive = folder.path().join("image.tar");
        busybox.archive(&archive).unwrap();
        let mut read = tar::Archive::new(File::open(archive).unwrap());
        let names: Vec<_> = read
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names[..2], ["bin/busybox", "bin/echo"]);
    }
}
