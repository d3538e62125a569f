//! A template's layer as one archive: owners, modes, times, extended attributes, hard links, holes
//! and an overlay's whiteouts come back as they were.
//!
//! A tenant chooses names, links, attributes and sizes. What a tar header cannot hold as it is
//! stands in records of our own, as hex: the records end with a newline, and so may a value.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io::{self, BufReader, BufWriter, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileExt, FileTypeExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
        XattrFlags, chownat, lgetxattr, linkat, llistxattr, mkdirat, mknodat, openat, openat2,
        setxattr, symlinkat, utimensat,
    },
    io::Errno,
};
use tar::{Archive, Builder, Entry, EntryType, Header, HeaderMode};

use crate::{Error, Result, error::At, manifest::is_below};

/// Of a name in hex, with a value in hex.
const ATTRIBUTE: &str = "SOULBOX.xattr.";
/// As backups before those had it: the name and the value as they are.
const PLAIN_ATTRIBUTE: &str = "SCHILY.xattr.";
const NAME: &str = "SOULBOX.path";
const LINK: &str = "SOULBOX.link";
/// The length of a file with holes. Its content is one piece after the other: where it is, how long
/// it is (both 8 bytes, the lowest first), and its bytes.
const LENGTH: &str = "SOULBOX.size";
const PIECE_HEAD: u64 = 16;
/// Names of all attributes of a file, and one value: the kernel's own limits.
const ATTRIBUTE_BYTES: usize = 64 << 10;
/// What a header has room for.
const HEADER_NAME: usize = 100;
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4096;
/// How much is read or written before somebody may say stop.
const CHUNK: usize = 4 << 20;

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Writes the archive of a folder. Returns what is not in it: names that are too long to be read,
/// and devices that are no whiteouts, which are never made by a restore.
pub(crate) fn pack(
    folder: &Path,
    target: &Path,
    goes_on: &dyn Fn() -> Result<()>,
) -> Result<Vec<PathBuf>> {
    let file = soulbox_sparse::new_image(target).at("write", target)?;
    let mut archive = Builder::new(BufWriter::with_capacity(1 << 20, file));
    archive.mode(HeaderMode::Complete);
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
        let kind = metadata.file_type();
        if kind.is_block_device() || (kind.is_char_device() && metadata.rdev() != 0) {
            left_out.push(path);
            continue;
        }
        append(&mut archive, &path, &name, &metadata, &mut linked, goes_on)?;
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
    archive: &mut Builder<BufWriter<File>>,
    path: &Path,
    name: &Path,
    metadata: &Metadata,
    linked: &mut HashMap<(u64, u64), PathBuf>,
    goes_on: &dyn Fn() -> Result<()>,
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
    let mut records: Vec<(String, String)> = attributes(path)?
        .iter()
        .map(|(name, value)| (format!("{ATTRIBUTE}{}", to_hex(name)), to_hex(value)))
        .collect();
    let mut header = Header::new_gnu();
    header.set_metadata(metadata);
    header.set_size(0);
    if fits(shown.as_os_str()) {
        header.set_path(shown).at("keep", path)?;
    } else {
        header.set_path("see-the-record").at("keep", path)?;
        records.push((NAME.to_owned(), to_hex(shown.as_os_str().as_bytes())));
    }
    let (mut link, mut content) = (None, None);
    if metadata.is_symlink() {
        link = Some(std::fs::read_link(path).at("read", path)?);
    } else if metadata.is_file() {
        let key = (metadata.dev(), metadata.ino());
        link = linked.get(&key).cloned();
        if link.is_some() {
            header.set_entry_type(EntryType::Link);
        } else {
            if metadata.nlink() > 1 {
                linked.insert(key, shown.to_owned());
            }
            let found = Content::of(path, goes_on)?;
            header.set_size(found.stored());
            if found.has_holes {
                records.push((LENGTH.to_owned(), found.length.to_string()));
            }
            content = Some(found);
        }
    }
    if let Some(link) = link {
        if fits(link.as_os_str()) {
            let bytes = link.as_os_str().as_bytes();
            header.set_link_name_literal(bytes).at("keep", path)?;
        }
        records.push((LINK.to_owned(), to_hex(link.as_os_str().as_bytes())));
    }
    header.set_cksum();
    let records = records
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_bytes()));
    archive.append_pax_extensions(records).at("keep", path)?;
    let Some(mut content) = content else {
        return archive.append(&header, io::empty()).at("keep", path);
    };
    let written = archive.append(&header, &mut content);
    content.stopped.into_inner().map_or(Ok(()), Err)?;
    written.at("keep", path)
}

/// Whether a header keeps it byte for byte.
fn fits(name: &OsStr) -> bool {
    name.len() < HEADER_NAME
        && name
            .to_str()
            .is_some_and(|name| !name.chars().any(char::is_control))
}

/// What is kept of a file: its data, and where it is if there are holes.
struct Content<'a> {
    file: File,
    length: u64,
    has_holes: bool,
    pieces: std::vec::IntoIter<(u64, u64)>,
    current: (u64, u64),
    buffer: Vec<u8>,
    /// How much of the buffer was given away.
    given: usize,
    goes_on: &'a dyn Fn() -> Result<()>,
    /// Why reading ended, which an I/O error cannot say.
    stopped: RefCell<Option<Error>>,
}

impl<'a> Content<'a> {
    fn of(path: &Path, goes_on: &'a dyn Fn() -> Result<()>) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, path, flags, Mode::empty()).at("read", path)?);
        let length = file.metadata().at("read", path)?.len();
        let pieces = soulbox_sparse::data_ranges(&file).at("read", path)?;
        let has_holes = length > 0 && pieces != [(0, length)];
        Ok(Self {
            file,
            length,
            has_holes,
            pieces: pieces.into_iter(),
            current: (0, 0),
            buffer: Vec::new(),
            given: 0,
            goes_on,
            stopped: RefCell::new(None),
        })
    }

    /// Before anything was read.
    fn stored(&self) -> u64 {
        let head = if self.has_holes { PIECE_HEAD } else { 0 };
        let pieces = self.pieces.as_slice().iter();
        pieces.map(|(start, end)| head + end - start).sum()
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.given = 0;
        if self.current.0 == self.current.1 {
            let Some((start, end)) = self.pieces.next() else {
                return Ok(());
            };
            self.current = (start, end);
            if self.has_holes {
                self.buffer.extend(start.to_le_bytes());
                self.buffer.extend((end - start).to_le_bytes());
            }
        }
        if let Err(error) = (self.goes_on)() {
            self.stopped.replace(Some(error));
            return Err(io::Error::other("stopped"));
        }
        let (start, end) = self.current;
        let wanted = usize::try_from(end - start).map_or(CHUNK, |left| left.min(CHUNK));
        let head = self.buffer.len();
        self.buffer.resize(head + wanted, 0);
        // All of it: the header has said how much comes.
        self.file.read_exact_at(&mut self.buffer[head..], start)?;
        self.current.0 += wanted as u64;
        Ok(())
    }
}

impl Read for Content<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.given == self.buffer.len() {
            self.fill()?;
        }
        let mut left = &self.buffer[self.given..];
        let count = left.read(into)?;
        self.given += count;
        Ok(count)
    }
}

fn attributes(path: &Path) -> Result<Attributes> {
    let mut names = vec![0; ATTRIBUTE_BYTES];
    let length = match llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(Vec::new()),
        Err(error) => return Err(error).at("read the attributes of", path),
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let mut value = vec![0; ATTRIBUTE_BYTES];
        match lgetxattr(path, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
            Err(error) => return Err(error).at("read the attributes of", path),
        }
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok())
        .collect()
}

/// Makes `target` from an archive. Nothing outside of it is touched, whatever the archive says.
pub(crate) fn unpack(
    archive: &Path,
    target: &Path,
    goes_on: &dyn Fn() -> Result<()>,
) -> Result<()> {
    std::fs::create_dir_all(target).at("make", target)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, target, flags, Mode::empty()).at("open", target)?;
    let maker = Maker { root, target };
    let folders = walk(archive, Some(&maker), goes_on)?;
    // Once nothing is put into them any more.
    for (name, seconds) in folders.into_iter().rev() {
        let path = target.join(&name);
        let folder = maker.folder(&name).at("open", &path)?;
        set_time(&folder, seconds).at("set the time of", &path)?;
    }
    Ok(())
}

/// Reads an archive to its end, and refuses what [`unpack`] would.
pub(crate) fn check(archive: &Path, goes_on: &dyn Fn() -> Result<()>) -> Result<()> {
    walk(archive, None, goes_on).map(drop)
}

struct Item {
    /// Empty for the layer's own folder.
    name: PathBuf,
    kind: Kind,
    mode: Mode,
    owner: (Uid, Gid),
    seconds: u64,
    attributes: Attributes,
}

enum Kind {
    Folder,
    /// With the length if it has holes.
    File(Option<u64>),
    Symlink(OsString),
    Link(PathBuf),
    Whiteout,
    Fifo,
}

/// Returns the folders and their times.
fn walk(
    archive: &Path,
    maker: Option<&Maker>,
    goes_on: &dyn Fn() -> Result<()>,
) -> Result<Vec<(PathBuf, u64)>> {
    let strange = |why: &str| Error::Damaged {
        path: archive.to_owned(),
        why: why.to_owned(),
    };
    // What the disk did not say is about the archive itself.
    let unread = |error: io::Error| match error.raw_os_error() {
        None => strange(&error.to_string()),
        Some(_) => Error::Io {
            what: "read",
            path: archive.to_owned(),
            source: error,
        },
    };
    let file = File::open(archive).at("read", archive)?;
    let mut opened = Archive::new(BufReader::with_capacity(1 << 20, file));
    let (mut known, mut files, mut folders) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut times = Vec::new();
    let mut buffer = vec![0; CHUNK];
    for entry in opened.entries().map_err(unread)? {
        let mut entry = entry.map_err(unread)?;
        let item = item_of(&mut entry).map_err(|why| match why {
            Unread::Io(error) => unread(error),
            Unread::Strange(why) => strange(&why),
        })?;
        let top = item.name.as_os_str().is_empty();
        // What is put into a folder must be in one that is from here: never through a link.
        let above = item.name.parent().unwrap_or(Path::new(""));
        if top && !matches!(item.kind, Kind::Folder) {
            return Err(strange("it is not the archive of a folder"));
        }
        if !top && !folders.contains(above) {
            return Err(strange("a file in it is in no folder"));
        }
        if !known.insert(item.name.clone()) {
            return Err(strange("a name is in it twice"));
        }
        match &item.kind {
            Kind::Folder => {
                goes_on()?;
                folders.insert(item.name.clone());
                times.push((item.name.clone(), item.seconds));
            }
            Kind::File(_) => drop(files.insert(item.name.clone())),
            Kind::Link(first) if !files.contains(first) => {
                return Err(strange("a link in it leads to no file of the layer"));
            }
            _ => {}
        }
        let file = maker.map(|maker| maker.make(&item)).transpose()?.flatten();
        if let Kind::File(length) = item.kind {
            let path = maker.map(|maker| maker.target.join(&item.name));
            let put = |bytes: &[u8], at: u64| match (&file, &path) {
                (Some(file), Some(path)) => file.write_all_at(bytes, at).at("write", path),
                _ => Ok(()),
            };
            if let (Some(length), Some(file), Some(path)) = (length, &file, &path) {
                file.set_len(length).at("write", path)?;
            }
            let mut left = entry.size();
            let mut end = 0;
            while left > 0 {
                let mut piece = (0, left);
                if let Some(length) = length {
                    let mut head = [[0; 8]; 2];
                    left = left
                        .checked_sub(PIECE_HEAD)
                        .ok_or_else(|| strange("a piece of a file in it is cut short"))?;
                    entry.read_exact(head.as_flattened_mut()).map_err(unread)?;
                    piece = (u64::from_le_bytes(head[0]), u64::from_le_bytes(head[1]));
                    let ends = piece.0.checked_add(piece.1);
                    if piece.0 < end || piece.1 > left || ends.is_none_or(|ends| ends > length) {
                        return Err(strange("a piece of a file in it is out of place"));
                    }
                }
                let (mut at, count) = piece;
                left -= count;
                end = at + count;
                while at < end {
                    goes_on()?;
                    let wanted = usize::try_from(end - at).map_or(CHUNK, |rest| rest.min(CHUNK));
                    entry.read_exact(&mut buffer[..wanted]).map_err(unread)?;
                    put(&buffer[..wanted], at)?;
                    at += wanted as u64;
                }
            }
        }
        if let Some(maker) = maker {
            maker.finish(&item)?;
        }
    }
    if folders.is_empty() {
        return Err(strange("nothing is in it"));
    }
    Ok(times)
}

enum Unread {
    Io(io::Error),
    Strange(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<&str> for Unread {
    fn from(why: &str) -> Self {
        Self::Strange(why.to_owned())
    }
}

fn item_of<R: Read>(entry: &mut Entry<'_, R>) -> Result<Item, Unread> {
    let (mut name, mut link, mut length) = (None, None, None);
    let mut attributes = Vec::new();
    if let Some(records) = entry.pax_extensions()? {
        for record in records {
            let record = record?;
            let value = record.value_bytes();
            let hex = || from_hex(value).ok_or("a record in it is no hex");
            match record.key() {
                Ok(NAME) => name = Some(hex()?),
                Ok(LINK) => link = Some(hex()?),
                Ok(LENGTH) => {
                    let number = record.value().ok().and_then(|text| text.parse().ok());
                    let number = number.filter(|number| i64::try_from(*number).is_ok());
                    length = Some(number.ok_or("a file in it has no length")?);
                }
                Ok(key) => {
                    if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                        let name = from_hex(name.as_bytes()).ok_or("a record in it is no hex")?;
                        attributes.push((name, hex()?));
                    } else if let Some(name) = key.strip_prefix(PLAIN_ATTRIBUTE) {
                        attributes.push((name.as_bytes().to_vec(), value.to_vec()));
                    }
                }
                Err(_) => {}
            }
        }
    }
    let odd = |(name, value): &(Vec<u8>, Vec<u8>)| {
        name.is_empty()
            || name.contains(&0)
            || name.len() > NAME_MAX
            || value.len() > ATTRIBUTE_BYTES
    };
    if attributes.iter().any(odd) {
        return Err("an attribute in it cannot be".into());
    }
    let name = plain_name(name.unwrap_or_else(|| entry.path_bytes().into_owned()))?;
    let link = link.or_else(|| entry.link_name_bytes().map(std::borrow::Cow::into_owned));
    let link = || link.ok_or("a link in it leads nowhere");
    let header = entry.header();
    let kind = match header.entry_type() {
        EntryType::Directory => Kind::Folder,
        EntryType::Regular => Kind::File(length),
        EntryType::Symlink => {
            let link = link()?;
            if link.is_empty() || link.contains(&0) || link.len() >= PATH_MAX {
                return Err("a link in it leads nowhere".into());
            }
            Kind::Symlink(OsString::from_vec(link))
        }
        EntryType::Link => Kind::Link(plain_name(link()?)?),
        EntryType::Fifo => Kind::Fifo,
        kind @ (EntryType::Char | EntryType::Block) => {
            let numbers = (header.device_major()?, header.device_minor()?);
            // The only one that an overlay has: any other one opens the host's hardware.
            if kind == EntryType::Block || numbers != (Some(0), Some(0)) {
                let name = name.display();
                return Err(Unread::Strange(format!("{name} in it is a device")));
            }
            Kind::Whiteout
        }
        _ => return Err("something in it is of an unknown kind".into()),
    };
    // The highest one says that there is none.
    let id = |id: u64| match u32::try_from(id) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err("an owner in it cannot be"),
    };
    Ok(Item {
        mode: Mode::from_raw_mode(header.mode()? & 0o7777),
        owner: (
            Uid::from_raw(id(header.uid()?)?),
            Gid::from_raw(id(header.gid()?)?),
        ),
        seconds: header.mtime()?,
        name,
        kind,
        attributes,
    })
}

/// Neither absolute nor upwards, and no longer than a name can be.
fn plain_name(bytes: Vec<u8>) -> Result<PathBuf, Unread> {
    if bytes.contains(&0) || bytes.len() >= PATH_MAX {
        return Err("a name in it cannot be".into());
    }
    let name = PathBuf::from(OsString::from_vec(bytes));
    let name: PathBuf = name.components().filter(|c| c.as_os_str() != ".").collect();
    if !name.as_os_str().is_empty() && !is_below(&name) {
        return Err("a name in it leads out of the layer".into());
    }
    if name.iter().any(|part| part.len() > NAME_MAX) {
        return Err("a name in it cannot be".into());
    }
    Ok(name)
}

/// Makes what is in a layer, by descriptors below its folder: a link is never followed.
struct Maker<'a> {
    root: OwnedFd,
    target: &'a Path,
}

impl Maker<'_> {
    fn open(&self, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let name = if name.as_os_str().is_empty() {
            Path::new(".")
        } else {
            name
        };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        Ok(openat2(&self.root, name, flags, Mode::empty(), resolve)?)
    }

    fn folder(&self, name: &Path) -> io::Result<OwnedFd> {
        self.open(name, OFlags::DIRECTORY)
    }

    /// The folder above, and the name in it.
    fn place<'a>(&self, name: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let above = self.folder(name.parent().unwrap_or(Path::new("")))?;
        Ok((above, name.file_name().unwrap_or_default()))
    }

    fn make(&self, item: &Item) -> Result<Option<File>> {
        let path = self.target.join(&item.name);
        if item.name.as_os_str().is_empty() {
            return Ok(None);
        }
        self.make_below(item).at("make", &path)
    }

    fn make_below(&self, item: &Item) -> io::Result<Option<File>> {
        let (above, name) = self.place(&item.name)?;
        // For nobody else until it has its owner.
        let (private, whole) = (Mode::RUSR | Mode::WUSR, Mode::RWXU);
        match &item.kind {
            Kind::Folder => mkdirat(&above, name, whole)?,
            Kind::File(_) => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                return Ok(Some(File::from(openat(&above, name, flags, private)?)));
            }
            Kind::Symlink(link) => symlinkat(link, &above, name)?,
            Kind::Link(first) => {
                let (from, first) = self.place(first)?;
                linkat(&from, first, &above, name, AtFlags::empty())?;
            }
            Kind::Whiteout => mknodat(&above, name, FileType::CharacterDevice, private, 0)?,
            Kind::Fifo => mknodat(&above, name, FileType::Fifo, private, 0)?,
        }
        Ok(None)
    }

    fn finish(&self, item: &Item) -> Result<()> {
        if matches!(item.kind, Kind::Link(_)) {
            return Ok(());
        }
        let path = self.target.join(&item.name);
        let made = if item.name.as_os_str().is_empty() {
            self.folder(&item.name)
        } else {
            self.place(&item.name).and_then(|(above, name)| {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(openat(&above, name, flags, Mode::empty())?)
            })
        };
        let made = made.at("open", &path)?;
        // The thing itself, even where it is a link or cannot be opened.
        let itself = format!("/proc/self/fd/{}", made.as_raw_fd());
        let (uid, gid) = item.owner;
        chownat(&made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).at("own", &path)?;
        for (name, value) in &item.attributes {
            setxattr(&itself, name.as_slice(), value, XattrFlags::empty())
                .at("set the attributes of", &path)?;
        }
        if !matches!(item.kind, Kind::Symlink(_)) {
            // After the owner: that takes set-uid bits away.
            rustix::fs::chmod(&itself, item.mode).at("set the mode of", &path)?;
        }
        if matches!(item.kind, Kind::Folder) {
            return Ok(());
        }
        set_time(&made, item.seconds).at("set the time of", &path)
    }
}

fn set_time(made: &OwnedFd, seconds: u64) -> io::Result<()> {
    let time = Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or_default(),
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(utimensat(made, "", &times, AtFlags::EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use rustix::fs::lsetxattr;

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
            for name in ["link", "whiteout"] {
                let path = source.path().join(name);
                lsetxattr(&path, "trusted.mark", b"1", XattrFlags::empty()).unwrap();
            }
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
        let opened = File::open(source.path().join("a")).unwrap();
        set_time(&opened.into(), 1_000_000).unwrap();
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

    fn forge(path: &Path, fill: &dyn Fn(&mut Builder<File>)) {
        let mut archive = Builder::new(File::create(path).unwrap());
        let mut top = whole_header();
        let id = |id: u32| u64::from(id);
        top.set_uid(id(rustix::process::geteuid().as_raw()));
        top.set_gid(id(rustix::process::getegid().as_raw()));
        top.set_entry_type(EntryType::Directory);
        top.set_mode(0o755);
        top.set_size(0);
        archive.append_data(&mut top, ".", io::empty()).unwrap();
        fill(&mut archive);
        archive.finish().unwrap();
    }

    /// By unpacking as by checking.
    fn refused(archive: &Path, target: &Path) -> String {
        let unpacked = unpack(archive, target, &|| Ok(())).unwrap_err();
        let checked = check(archive, &|| Ok(())).unwrap_err();
        assert!(matches!(unpacked, Error::Damaged { .. }), "{unpacked}");
        assert_eq!(checked.to_string(), unpacked.to_string());
        checked.to_string()
    }

    #[test]
    fn an_archive_that_leads_out_of_its_layer_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, fill: &dyn Fn(&mut Builder<File>)| {
            let path = folder.path().join(name);
            forge(&path, fill);
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
            refused(archive, &target);
        }
        assert!(!folder.path().join("escape").exists());
    }

    #[test]
    fn newlines_and_bytes_that_are_no_text_come_back() {
        let (source, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let long = [b"\xff".repeat(120), b"..\n".to_vec()].concat();
        let names = [&b"a\nb"[..], b"\n", b"\xff\xfe", b"12 path=x\n", &long];
        for name in names {
            let path = source.path().join(OsStr::from_bytes(name));
            std::fs::write(&path, name).unwrap();
        }
        let value = b"first\n30 SCHILY.xattr.user.x=y\n\0\xff\n";
        let file = source.path().join("\n");
        let kept = lsetxattr(&file, "user.new\nline", value, XattrFlags::empty()).is_ok();
        if !kept {
            println!("skipped: no attributes on this file system");
        }
        let link = OsStr::from_bytes(b"/x//y\n\xff/./");
        symlink(link, source.path().join("link")).unwrap();
        std::fs::hard_link(&file, source.path().join("z\nsame")).unwrap();
        let (archive, target) = (other.path().join("layer.tar"), other.path().join("layer"));
        pack(source.path(), &archive, &|| Ok(())).unwrap();
        check(&archive, &|| Ok(())).unwrap();
        unpack(&archive, &target, &|| Ok(())).unwrap();
        for name in names {
            let path = target.join(OsStr::from_bytes(name));
            assert_eq!(std::fs::read(path).unwrap(), name);
        }
        assert_eq!(std::fs::read_link(target.join("link")).unwrap(), link);
        assert_eq!(
            std::fs::metadata(target.join("z\nsame")).unwrap().nlink(),
            2
        );
        let back = attributes(&target.join("\n")).unwrap();
        assert_eq!(back, attributes(&file).unwrap());
        assert!(!kept || back.contains(&(b"user.new\nline".to_vec(), value.to_vec())));
    }

    #[test]
    fn a_hole_of_a_tebibyte_takes_no_room() {
        let (source, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = File::create(source.path().join("big")).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"middle", 1 << 39).unwrap();
        file.write_all_at(b"end", (1 << 40) - 3).unwrap();
        let empty = File::create(source.path().join("hole")).unwrap();
        empty.set_len((1 << 40) + 1).unwrap();
        let (archive, target) = (other.path().join("layer.tar"), other.path().join("layer"));
        pack(source.path(), &archive, &|| Ok(())).unwrap();
        assert!(std::fs::metadata(&archive).unwrap().len() < 1 << 20);
        check(&archive, &|| Ok(())).unwrap();
        unpack(&archive, &target, &|| Ok(())).unwrap();
        let back = File::open(target.join("big")).unwrap();
        let found = back.metadata().unwrap();
        assert!(found.len() == 1 << 40 && found.blocks() < 2048);
        for (at, content) in [(1 << 39, &b"middle"[..]), ((1 << 40) - 3, b"end")] {
            let mut read = vec![0; content.len()];
            back.read_exact_at(&mut read, at).unwrap();
            assert_eq!(read, content);
        }
        let hole = std::fs::metadata(target.join("hole")).unwrap();
        assert!(hole.len() == (1 << 40) + 1 && hole.blocks() == 0);
    }

    #[test]
    fn pieces_out_of_place_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let piece = |at: u64, count: u64, bytes: &[u8]| {
            [&at.to_le_bytes()[..], &count.to_le_bytes(), bytes].concat()
        };
        let cases = [
            piece(90, 20, &[1; 20]),
            piece(u64::MAX, 2, &[1; 2]),
            piece(0, 20, &[1; 10]),
            [piece(10, 10, &[1; 10]), piece(15, 10, &[1; 10])].concat(),
            [piece(10, 10, &[1; 10]), b"rest".to_vec()].concat(),
        ];
        for (number, content) in cases.iter().enumerate() {
            let archive = folder.path().join(format!("{number}.tar"));
            forge(&archive, &|archive| {
                let length = (LENGTH, &b"100"[..]);
                archive.append_pax_extensions([length]).unwrap();
                let mut header = whole_header();
                header.set_mode(0o644);
                header.set_size(content.len() as u64);
                archive
                    .append_data(&mut header, "file", content.as_slice())
                    .unwrap();
            });
            let why = refused(&archive, &folder.path().join(number.to_string()));
            assert!(why.contains("a piece of a file"), "{why}");
        }
    }

    #[test]
    fn a_file_in_place_of_a_link_is_refused_and_nothing_outside_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "kept").unwrap();
        let archive = folder.path().join("layer.tar");
        forge(&archive, &|archive| {
            let mut header = whole_header();
            header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
            header.set_gid(u64::from(rustix::process::getegid().as_raw()));
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            archive.append_link(&mut header, "x", &outside).unwrap();
            let mut header = whole_header();
            header.set_mode(0o4777);
            header.set_size(4);
            archive.append_data(&mut header, "x", &b"evil"[..]).unwrap();
        });
        let before = std::fs::metadata(&outside).unwrap().mode();
        let why = refused(&archive, &folder.path().join("layer"));
        assert!(why.contains("twice"), "{why}");
        // Nor where the link was there before.
        let target = folder.path().join("other");
        std::fs::create_dir(&target).unwrap();
        symlink(&outside, target.join("x")).unwrap();
        let archive = folder.path().join("file.tar");
        forge(&archive, &|archive| {
            let mut header = whole_header();
            header.set_mode(0o4777);
            header.set_size(4);
            archive.append_data(&mut header, "x", &b"evil"[..]).unwrap();
        });
        unpack(&archive, &target, &|| Ok(())).unwrap_err();
        assert_eq!(std::fs::read(&outside).unwrap(), b"kept");
        assert_eq!(std::fs::metadata(&outside).unwrap().mode(), before);
    }

    #[test]
    fn a_device_is_refused_by_its_name_and_left_out_of_an_archive() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, minor) in [(EntryType::Block, 0), (EntryType::Char, 1)] {
            let archive = folder.path().join("layer.tar");
            forge(&archive, &|archive| {
                let mut header = whole_header();
                header.set_entry_type(kind);
                header.set_mode(0o666);
                header.set_size(0);
                header.set_device_major(0).unwrap();
                header.set_device_minor(minor).unwrap();
                archive
                    .append_data(&mut header, "disk", io::empty())
                    .unwrap();
            });
            let target = folder.path().join(format!("layer{minor}"));
            let why = refused(&archive, &target);
            assert!(why.contains("disk in it is a device"), "{why}");
            assert!(!target.join("disk").exists());
        }
        let source = tempfile::tempdir().unwrap();
        let null = source.path().join("null");
        let device = rustix::fs::makedev(1, 3);
        if mknodat(CWD, &null, FileType::CharacterDevice, Mode::empty(), device).is_err() {
            println!("skipped: devices need root");
            return;
        }
        let archive = folder.path().join("layer.tar");
        let left_out = pack(source.path(), &archive, &|| Ok(())).unwrap();
        assert_eq!(left_out, [null]);
        check(&archive, &|| Ok(())).unwrap();
    }

    #[test]
    fn a_large_file_is_stopped_in_its_middle() {
        let (source, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(source.path().join("large"), vec![1; 5 * CHUNK]).unwrap();
        let archive = other.path().join("layer.tar");
        pack(source.path(), &archive, &|| Ok(())).unwrap();
        let soon = || {
            let left = Cell::new(3);
            move || {
                left.set(left.get() - 1);
                if left.get() == 0 {
                    return Err(Error::Stopped);
                }
                Ok(())
            }
        };
        let (cut, target) = (other.path().join("cut.tar"), other.path().join("layer"));
        let stopped = [
            pack(source.path(), &cut, &soon()).map(drop),
            unpack(&archive, &target, &soon()),
            check(&archive, &soon()),
        ];
        assert!(stopped.iter().all(|one| matches!(one, Err(Error::Stopped))));
        for path in [cut, target.join("large")] {
            let length = std::fs::metadata(path).unwrap().len();
            assert!(length > 0 && length < 2 * CHUNK as u64, "{length}");
        }
    }
}
