//! A file as clients see it.

use std::{
    fs::Metadata,
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use crate::{
    files::metadata,
    paths::base_name,
    proto::filesystem::{DIRECTORY, EntryInfo, FILE, Timestamp},
    users::Names,
};

/// Looks at the entry itself; a link shows the type and mode of what it points to.
pub(crate) fn entry_info(path: &Path, names: &Names) -> io::Result<EntryInfo> {
    let own = std::fs::symlink_metadata(path)?;
    let is_symlink = own.is_symlink();
    let mut entry = EntryInfo {
        name: base_name(path),
        path: path.to_string_lossy().into_owned(),
        size: i64::try_from(own.len()).unwrap_or(i64::MAX),
        permissions: permissions(&own),
        owner: names.user(own.uid()),
        group: names.group(own.gid()),
        modified_time: Some(Timestamp {
            seconds: own.mtime(),
            nanos: i32::try_from(own.mtime_nsec()).unwrap_or(0),
        }),
        ..Default::default()
    };
    if is_symlink {
        match path
            .canonicalize()
            .and_then(|target| Ok((std::fs::metadata(&target)?, target)))
        {
            Ok((found, target)) => {
                entry.kind = kind(&found);
                entry.mode = found.mode() & 0o777;
                entry.symlink_target = Some(target.to_string_lossy().into_owned());
            }
            // A broken link points, as it were, to itself.
            Err(_) => entry.symlink_target = Some(entry.path.clone()),
        }
    } else {
        entry.kind = kind(&own);
        entry.mode = own.mode() & 0o777;
        entry.metadata = metadata::read(path);
    }
    Ok(entry)
}

/// Devices, sockets and FIFOs have no type.
fn kind(found: &Metadata) -> i32 {
    match found {
        found if found.is_file() => FILE,
        found if found.is_dir() => DIRECTORY,
        _ => 0,
    }
}

/// Like `ls -l`, with the letters of Go's `FileMode`, which E2B's clients see.
fn permissions(found: &Metadata) -> String {
    const LETTERS: &[u8; 9] = b"rwxrwxrwx";
    let (mode, kind) = (found.mode(), found.file_type());
    let mut text = String::new();
    let mut flag = |set: bool, letter: &str| {
        if set {
            text.push_str(letter);
        }
    };
    flag(kind.is_dir(), "d");
    flag(kind.is_symlink(), "L");
    flag(kind.is_block_device() || kind.is_char_device(), "D");
    flag(kind.is_fifo(), "p");
    flag(kind.is_socket(), "S");
    flag(mode & 0o4000 != 0, "u");
    flag(mode & 0o2000 != 0, "g");
    flag(kind.is_char_device(), "c");
    flag(mode & 0o1000 != 0, "t");
    if text.is_empty() {
        text.push('-');
    }
    for (i, letter) in LETTERS.iter().enumerate() {
        text.push(if mode & (0o400 >> i) != 0 {
            char::from(*letter)
        } else {
            '-'
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_directories_and_links_look_as_the_sdks_expect() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::write(root.join("f"), "hello").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&root.join("f"), 0o4640);
        std::fs::create_dir(root.join("d")).unwrap();
        set(&root.join("d"), 0o1777);
        symlink("f", root.join("l")).unwrap();
        symlink("nowhere", root.join("broken")).unwrap();
        let names = Names::load();
        let info = |name: &str| entry_info(&root.join(name), &names).unwrap();

        let file = info("f");
        assert_eq!((file.kind, file.mode, file.size), (FILE, 0o640, 5));
        assert_eq!(file.permissions, "urw-r-----");
        assert_eq!(file.symlink_target, None);

        let dir = info("d");
        assert_eq!(
            (dir.kind, dir.permissions.as_str()),
            (DIRECTORY, "dtrwxrwxrwx")
        );

        let link = info("l");
        assert_eq!(
            (link.kind, link.mode, link.permissions.as_str()),
            (FILE, 0o640, "Lrwxrwxrwx")
        );
        assert_eq!(
            link.symlink_target.unwrap(),
            root.join("f").to_str().unwrap()
        );

        let broken = info("broken");
        assert_eq!((broken.kind, broken.mode), (0, 0));
        assert_eq!(broken.symlink_target.as_ref(), Some(&broken.path));
    }
}
