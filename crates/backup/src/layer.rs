//! A template's layer as one archive: owners, modes, times, extended attributes, hard links and
//! devices (an overlay's whiteouts) come back as they were.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::Metadata,
    io::{self, BufReader, BufWriter, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat,
        lgetxattr, llistxattr, lsetxattr, makedev, mknodat, utimensat,
    },
    io::Errno,
};
use tar::{Archive, Builder, EntryType, Header, HeaderMode};

use crate::{Error, Result, error::At, manifest::is_below};

const ATTRIBUTE: &str = "SCHILY.xattr.";
/// Names of all attributes of a file, and one value: the kernel's own limits.
const ATTRIBUTE_BYTES: usize = 64 << 10;

/// Writes the archive of a folder. Returns what could not be read by its name, since that is too
/// long.
pub(crate) fn pack(
    folder: &Path,
    target: &Path,
    goes_on: &dyn Fn() -> Result<()>,
) -> Result<Vec<PathBuf>> {
    let file = soulbox_sparse::new_image(target).at("write", target)?;
    let mut archive = Builder::new(BufWriter::with_capacity(1 << 20, file));
    archive.mode(HeaderMode::Complete);
    archive.sparse(false);
    let (mut left_out, mut linked) = (Vec::new(), HashMap::new());
    let mut waiting = vec![PathBuf::new()];
    while let Some(name) = waiting.pop() {
        let path = folder.join(&name);
        let found = std::fs::symlink_metadata(&path);
        let metadata = match found {
            Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
                left_out.push(path);
                continue;
            }
            other => other.at("read", &path)?,
        };
        append(&mut archive, &path, &name, &metadata, &mut linked)?;
        if !metadata.is_dir() {
            continue;
        }
        goes_on()?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).at("list", &path)? {
            names.push(name.join(entry.at("list", &path)?.file_name()));
        }
        // The last one is taken first.
        names.sort_unstable_by(|one, other| other.cmp(one));
        waiting.extend(names);
    }
    let mut file = archive.into_inner().at("write", target)?;
    file.flush().at("write", target)?;
    Ok(left_out)
}

fn append(
    archive: &mut Builder<BufWriter<std::fs::File>>,
    path: &Path,
    name: &Path,
    metadata: &Metadata,
    linked: &mut HashMap<(u64, u64), PathBuf>,
) -> Result<()> {
    if metadata.file_type().is_socket() {
        // Of no use without the process that made it.
        return Ok(());
    }
    // The folder itself comes first.
    let shown = if name.as_os_str().is_empty() {
        Path::new(".")
    } else {
        name
    };
    let attributes = attributes(path)?;
    let pax = attributes
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_slice()));
    if !attributes.is_empty() {
        archive.append_pax_extensions(pax).at("keep", path)?;
    }
    let mut header = Header::new_gnu();
    header.set_metadata(metadata);
    let written = if metadata.is_symlink() {
        let target = std::fs::read_link(path).at("read", path)?;
        header.set_size(0);
        archive.append_link(&mut header, shown, target)
    } else if metadata.is_file() {
        let key = (metadata.dev(), metadata.ino());
        match linked.get(&key) {
            Some(first) if metadata.nlink() > 1 => {
                header.set_entry_type(EntryType::Link);
                header.set_size(0);
                archive.append_link(&mut header, shown, first)
            }
            _ => {
                linked.insert(key, shown.to_owned());
                let file = std::fs::File::open(path).at("read", path)?;
                archive.append_data(&mut header, shown, BufReader::new(file))
            }
        }
    } else {
        header.set_size(0);
        archive.append_data(&mut header, shown, io::empty())
    };
    written.at("keep", path)
}

fn attributes(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0; ATTRIBUTE_BYTES];
    let length = match llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(Vec::new()),
        Err(error) => return Err(error).at("read the attributes of", path),
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        // Names come from the kernel's handlers; one that is no text is none of ours.
        let Some(name) = std::str::from_utf8(name).ok().filter(|n| !n.is_empty()) else {
            continue;
        };
        let mut value = vec![0; ATTRIBUTE_BYTES];
        match lgetxattr(path, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
            Err(error) => return Err(error).at("read the attributes of", path),
        }
        found.push((format!("{ATTRIBUTE}{name}"), value));
    }
    Ok(found)
}

/// Makes `target` from an archive, which nothing but [`pack`] has written.
pub(crate) fn unpack(
    archive: &Path,
    target: &Path,
    goes_on: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let file = std::fs::File::open(archive).at("read", archive)?;
    let mut opened = Archive::new(BufReader::with_capacity(1 << 20, file));
    let strange = |why: &str| Error::Damaged {
        path: archive.to_owned(),
        why: why.to_owned(),
    };
    // What is put into a folder must be in one that is from here: never through a link.
    let mut folders: HashSet<PathBuf> = HashSet::new();
    let mut times = Vec::new();
    std::fs::create_dir_all(target).at("make", target)?;
    for entry in opened.entries().at("read", archive)? {
        let mut entry = entry.at("read", archive)?;
        let name = PathBuf::from(OsString::from_vec(entry.path_bytes().into_owned()));
        let name: PathBuf = name.components().filter(|c| c.as_os_str() != ".").collect();
        let top = name.as_os_str().is_empty();
        if !top && !is_below(&name) {
            return Err(strange("a name in it leads out of the layer"));
        }
        let above = name.parent().unwrap_or(Path::new(""));
        if !top && !folders.contains(above) {
            return Err(strange("a file in it is in no folder"));
        }
        let path = target.join(&name);
        let mut attributes = Vec::new();
        if let Some(extensions) = entry.pax_extensions().at("read", archive)? {
            for extension in extensions {
                let extension = extension.at("read", archive)?;
                if let Ok(key) = extension.key()
                    && let Some(attribute) = key.strip_prefix(ATTRIBUTE)
                {
                    attributes.push((attribute.to_owned(), extension.value_bytes().to_vec()));
                }
            }
        }
        let header = entry.header().clone();
        let kind = header.entry_type();
        let mode = header.mode().at("read", archive)? & 0o7777;
        match kind {
            EntryType::Directory => {
                goes_on()?;
                if !top {
                    std::fs::create_dir(&path).at("make", &path)?;
                }
                folders.insert(name.clone());
            }
            EntryType::Regular => {
                let mut file = soulbox_sparse::new_image(&path).at("make", &path)?;
                io::copy(&mut entry, &mut file).at("write", &path)?;
            }
            EntryType::Symlink => {
                let link = entry
                    .link_name_bytes()
                    .ok_or_else(|| strange("a link in it leads nowhere"))?;
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&link), &path)
                    .at("make", &path)?;
            }
            EntryType::Link => {
                let link = entry
                    .link_name_bytes()
                    .ok_or_else(|| strange("a link in it leads nowhere"))?;
                let first = PathBuf::from(OsString::from_vec(link.into_owned()));
                let known = first.parent().is_some_and(|above| folders.contains(above));
                if !is_below(&first) || !known {
                    return Err(strange("a link in it leads out of the layer"));
                }
                std::fs::hard_link(target.join(first), &path).at("link", &path)?;
                continue;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let (file_type, device) = device_of(&header, kind).at("read", archive)?;
                let mode = Mode::from_raw_mode(mode);
                mknodat(CWD, &path, file_type, mode, device).at("make", &path)?;
            }
            _ => return Err(strange("something in it is of an unknown kind")),
        }
        let (uid, gid) = ids(&header).at("read", archive)?;
        chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).at("own", &path)?;
        for (name, value) in attributes {
            lsetxattr(&path, name.as_str(), &value, XattrFlags::empty())
                .at("set the attributes of", &path)?;
        }
        if kind != EntryType::Symlink {
            // After the owner: that takes set-uid bits away.
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).at("set the mode of", &path)?;
        }
        let seconds = header.mtime().at("read", archive)?;
        if kind == EntryType::Directory {
            // Once nothing is put into it any more.
            times.push((path, seconds));
        } else {
            set_time(&path, seconds)?;
        }
    }
    for (path, seconds) in times.into_iter().rev() {
        set_time(&path, seconds)?;
    }
    Ok(())
}

fn ids(header: &Header) -> io::Result<(Uid, Gid)> {
    let number = |id: u64| u32::try_from(id).map_err(io::Error::other);
    Ok((
        Uid::from_raw(number(header.uid()?)?),
        Gid::from_raw(number(header.gid()?)?),
    ))
}

fn device_of(header: &Header, kind: EntryType) -> io::Result<(FileType, u64)> {
    let numbers = || -> io::Result<u64> {
        let major = header.device_major()?.unwrap_or_default();
        let minor = header.device_minor()?.unwrap_or_default();
        Ok(makedev(major, minor))
    };
    Ok(match kind {
        EntryType::Char => (FileType::CharacterDevice, numbers()?),
        EntryType::Block => (FileType::BlockDevice, numbers()?),
        _ => (FileType::Fifo, 0),
    })
}

fn set_time(path: &Path, seconds: u64) -> Result<()> {
    let time = Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or_default(),
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).at("set the time of", path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let long = "n".repeat(200);
        std::fs::create_dir_all(at(&format!("a/{long}"))).unwrap();
        std::fs::write(at(&format!("a/{long}/file")), "deep").unwrap();
        std::fs::write(at("program"), "#!").unwrap();
        std::fs::set_permissions(at("program"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::fs::hard_link(at("program"), at("same")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        std::fs::set_permissions(at("a"), std::fs::Permissions::from_mode(0o1777)).unwrap();
        folder
    }

    #[test]
    fn a_layer_comes_back_as_it_was() {
        let (source, other) = (tree(), tempfile::tempdir().unwrap());
        let root = rustix::process::geteuid().is_root();
        if root {
            let path = source.path().join("whiteout");
            mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
            let opaque = source.path().join("a");
            lsetxattr(&opaque, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
            chownat(
                CWD,
                source.path().join("program"),
                Some(Uid::from_raw(1000)),
                None,
                AtFlags::empty(),
            )
            .unwrap();
            rustix::fs::chmod(source.path().join("program"), Mode::from_raw_mode(0o4755)).unwrap();
        } else {
            println!("skipped: devices, owners and trusted attributes need root");
        }
        set_time(&source.path().join("a"), 1_000_000).unwrap();
        let archive = other.path().join("layer.tar");
        assert!(
            pack(source.path(), &archive, &|| Ok(()))
                .unwrap()
                .is_empty()
        );
        let target = other.path().join("layer");
        unpack(&archive, &target, &|| Ok(())).unwrap();
        let long = "n".repeat(200);
        for name in ["", "a", "program", "same", "link"]
            .into_iter()
            .map(str::to_owned)
            .chain([format!("a/{long}/file")])
            .chain(root.then(|| "whiteout".to_owned()))
        {
            let seen = |folder: &Path| {
                let path = folder.join(&name);
                let found = std::fs::symlink_metadata(&path).unwrap();
                let content = if found.is_file() {
                    std::fs::read(&path).unwrap()
                } else {
                    Vec::new()
                };
                let link = std::fs::read_link(&path).ok();
                (
                    (found.mode(), found.uid(), found.gid(), found.mtime()),
                    (content, link, found.rdev()),
                    attributes(&path).unwrap(),
                )
            };
            assert_eq!(seen(&target), seen(source.path()), "{name}");
        }
        let inode = |name: &str| std::fs::metadata(target.join(name)).unwrap().ino();
        assert_eq!(inode("program"), inode("same"));
    }

    fn whole_header() -> Header {
        let mut header = Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header
    }

    #[test]
    fn an_archive_that_leads_out_of_its_layer_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, fill: &dyn Fn(&mut Builder<std::fs::File>)| {
            let path = folder.path().join(name);
            let mut archive = Builder::new(std::fs::File::create(&path).unwrap());
            let mut top = whole_header();
            top.set_entry_type(EntryType::Directory);
            top.set_mode(0o755);
            top.set_size(0);
            archive.append_data(&mut top, ".", io::empty()).unwrap();
            fill(&mut archive);
            archive.finish().unwrap();
            path
        };
        let through_a_link = write("link.tar", &|archive| {
            let mut header = whole_header();
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            archive.append_link(&mut header, "out", "/tmp").unwrap();
            let mut header = whole_header();
            header.set_mode(0o644);
            header.set_size(0);
            archive
                .append_data(&mut header, "out/file", io::empty())
                .unwrap();
        });
        let upwards = write("up.tar", &|archive| {
            let mut header = whole_header();
            header.set_mode(0o644);
            header.set_size(0);
            header.as_mut_bytes()[..9].copy_from_slice(b"../escape");
            header.set_cksum();
            archive.append(&header, io::empty()).unwrap();
        });
        for (number, archive) in [through_a_link, upwards].iter().enumerate() {
            let target = folder.path().join(format!("target{number}"));
            let refused = unpack(archive, &target, &|| Ok(())).unwrap_err();
            assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
        }
        assert!(!folder.path().join("escape").exists());
    }
}
