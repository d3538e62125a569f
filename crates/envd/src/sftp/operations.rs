//! One request, one response.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions, ReadDir},
    io::{self, ErrorKind},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileExt, OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use super::{
    attributes::{self, Attributes},
    wire::{Answer, Fields, MAX_DATA, MAX_PACKET, Malformed, Packet},
};

const VERSION: u32 = 3;
const EXTENSIONS: [(&str, &str); 4] = [
    ("posix-rename@openssh.com", "1"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("limits@openssh.com", "1"),
];
const MOST_HANDLES: usize = 1000;
/// Per response: names are up to 255 bytes, twice.
const MOST_NAMES: usize = 100;

mod kind {
    pub(super) const INIT: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const WRITE: u8 = 6;
    pub(super) const LSTAT: u8 = 7;
    pub(super) const FSTAT: u8 = 8;
    pub(super) const SETSTAT: u8 = 9;
    pub(super) const FSETSTAT: u8 = 10;
    pub(super) const OPENDIR: u8 = 11;
    pub(super) const READDIR: u8 = 12;
    pub(super) const REMOVE: u8 = 13;
    pub(super) const MKDIR: u8 = 14;
    pub(super) const RMDIR: u8 = 15;
    pub(super) const REALPATH: u8 = 16;
    pub(super) const STAT: u8 = 17;
    pub(super) const RENAME: u8 = 18;
    pub(super) const READLINK: u8 = 19;
    pub(super) const SYMLINK: u8 = 20;
    pub(super) const STATUS: u8 = 101;
    pub(super) const HANDLE: u8 = 102;
    pub(super) const DATA: u8 = 103;
    pub(super) const NAME: u8 = 104;
    pub(super) const ATTRS: u8 = 105;
    pub(super) const EXTENDED: u8 = 200;
    pub(super) const EXTENDED_REPLY: u8 = 201;
}

mod open_flag {
    pub(super) const READ: u32 = 0x01;
    pub(super) const WRITE: u32 = 0x02;
    pub(super) const APPEND: u32 = 0x04;
    pub(super) const CREATE: u32 = 0x08;
    pub(super) const TRUNCATE: u32 = 0x10;
    pub(super) const EXCLUSIVE: u32 = 0x20;
}

/// Why a request was not carried out.
#[derive(Debug)]
enum Failure {
    End,
    Io(io::Error),
    Malformed,
    Unsupported,
    NoHandle,
    TooManyHandles,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for Failure {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl Failure {
    fn status(&self) -> (u32, String) {
        match self {
            Self::End => (1, "end of file".to_owned()),
            Self::Io(error) => {
                let code = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => 2,
                    ErrorKind::PermissionDenied => 3,
                    _ => 4,
                };
                (code, error.to_string())
            }
            Self::NoHandle => (4, "no such handle".to_owned()),
            Self::TooManyHandles => (4, "too many open files".to_owned()),
            Self::Malformed => (5, "a malformed request".to_owned()),
            Self::Unsupported => (8, "not supported".to_owned()),
        }
    }
}

#[derive(Debug)]
enum Handle {
    File { file: File, append: bool },
    Folder(ReadDir),
}

#[derive(Debug, Default)]
pub(super) struct Server {
    handles: BTreeMap<u32, Handle>,
    next: u32,
}

impl Server {
    pub(super) fn answer(&mut self, request: &Packet) -> Vec<u8> {
        let mut fields = request.fields();
        // Both come first in every packet; INIT has its version in place of the id.
        let (Ok(kind), Ok(id)) = (fields.byte(), fields.number()) else {
            return status(0, &Failure::Malformed);
        };
        if kind == kind::INIT {
            let hello = Answer::new(kind::VERSION, VERSION);
            let hello = EXTENSIONS.iter().fold(hello, |hello, (name, version)| {
                hello.bytes(name.as_bytes()).bytes(version.as_bytes())
            });
            return hello.finish();
        }
        match self.act(kind, id, fields) {
            Ok(Some(answer)) => answer.finish(),
            Ok(None) => done(id),
            Err(failure) => status(id, &failure),
        }
    }

    /// `None`: it was done, and there is nothing to tell.
    fn act(
        &mut self,
        kind: u8,
        id: u32,
        mut fields: Fields<'_>,
    ) -> Result<Option<Answer>, Failure> {
        let answer = match kind {
            kind::OPEN => Some(self.open(id, &mut fields)?),
            kind::CLOSE => {
                let handle = number(fields.bytes()?)?;
                self.handles.remove(&handle).ok_or(Failure::NoHandle)?;
                None
            }
            kind::READ => Some(self.read(id, &mut fields)?),
            kind::WRITE => {
                self.write(&mut fields)?;
                None
            }
            kind::LSTAT => Some(attrs(id, &fs::symlink_metadata(path(&mut fields)?)?)),
            kind::STAT => Some(attrs(id, &fs::metadata(path(&mut fields)?)?)),
            kind::FSTAT => Some(attrs(id, &self.file(fields.bytes()?)?.0.metadata()?)),
            kind::SETSTAT => {
                let path = path(&mut fields)?;
                Attributes::read(&mut fields)?.apply_to(path)?;
                None
            }
            kind::FSETSTAT => {
                let (file, _) = self.file(fields.bytes()?)?;
                Attributes::read(&mut fields)?.apply(file)?;
                None
            }
            kind::OPENDIR => {
                let folder = fs::read_dir(path(&mut fields)?)?;
                Some(self.keep(id, Handle::Folder(folder))?)
            }
            kind::READDIR => Some(self.list(id, &mut fields)?),
            kind::REMOVE => {
                fs::remove_file(path(&mut fields)?)?;
                None
            }
            kind::MKDIR => {
                let path = path(&mut fields)?;
                let mode = Attributes::read(&mut fields)?.permissions.unwrap_or(0o777);
                fs::DirBuilder::new().mode(mode & 0o7777).create(path)?;
                None
            }
            kind::RMDIR => {
                fs::remove_dir(path(&mut fields)?)?;
                None
            }
            kind::REALPATH => Some(name(id, real_path(path(&mut fields)?)?.as_os_str())),
            kind::READLINK => Some(name(id, fs::read_link(path(&mut fields)?)?.as_os_str())),
            kind::RENAME => {
                let (from, to) = (path(&mut fields)?, path(&mut fields)?);
                if fs::symlink_metadata(to).is_ok() {
                    return Err(io::Error::from(ErrorKind::AlreadyExists).into());
                }
                fs::rename(from, to)?;
                None
            }
            // Everybody sends them in this order, though the draft has the other.
            kind::SYMLINK => {
                let (target, link) = (path(&mut fields)?, path(&mut fields)?);
                symlink(target, link)?;
                None
            }
            kind::EXTENDED => self.extended(id, &mut fields)?,
            _ => return Err(Failure::Unsupported),
        };
        Ok(answer)
    }

    fn extended(&mut self, id: u32, fields: &mut Fields<'_>) -> Result<Option<Answer>, Failure> {
        match fields.bytes()? {
            b"posix-rename@openssh.com" => fs::rename(path(fields)?, path(fields)?)?,
            b"hardlink@openssh.com" => fs::hard_link(path(fields)?, path(fields)?)?,
            b"fsync@openssh.com" => self.file(fields.bytes()?)?.0.sync_all()?,
            b"limits@openssh.com" => {
                let limits = [MAX_PACKET, MAX_DATA, MAX_DATA, MOST_HANDLES];
                let answer = Answer::new(kind::EXTENDED_REPLY, id);
                return Ok(Some(limits.iter().fold(answer, |answer, limit| {
                    answer.long(u64::try_from(*limit).unwrap_or(u64::MAX))
                })));
            }
            _ => return Err(Failure::Unsupported),
        }
        Ok(None)
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>) -> Result<Answer, Failure> {
        let path = path(fields)?;
        let flags = fields.number()?;
        let mode = Attributes::read(fields)?.permissions.unwrap_or(0o666);
        let has = |flag| flags & flag != 0;
        let append = has(open_flag::APPEND);
        let file = OpenOptions::new()
            .read(has(open_flag::READ))
            .write(has(open_flag::WRITE) && !append)
            .append(append)
            .create(has(open_flag::CREATE))
            .create_new(has(open_flag::CREATE) && has(open_flag::EXCLUSIVE))
            .truncate(has(open_flag::TRUNCATE) && !append)
            .mode(mode & 0o7777)
            .open(path)?;
        self.keep(id, Handle::File { file, append })
    }

    fn keep(&mut self, id: u32, handle: Handle) -> Result<Answer, Failure> {
        if self.handles.len() >= MOST_HANDLES {
            return Err(Failure::TooManyHandles);
        }
        while self.handles.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.handles.insert(number, handle);
        Ok(Answer::new(kind::HANDLE, id).bytes(&number.to_be_bytes()))
    }

    fn file(&self, handle: &[u8]) -> Result<(&File, bool), Failure> {
        match self.handles.get(&number(handle)?) {
            Some(Handle::File { file, append }) => Ok((file, *append)),
            _ => Err(Failure::NoHandle),
        }
    }

    fn read(&mut self, id: u32, fields: &mut Fields<'_>) -> Result<Answer, Failure> {
        let (file, _) = self.file(fields.bytes()?)?;
        let offset = fields.long()?;
        let length = (fields.number()? as usize).min(MAX_DATA);
        let mut data = vec![0; length];
        let mut filled = 0;
        // A short response would cost the client another request.
        while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if filled == 0 && length > 0 {
            return Err(Failure::End);
        }
        data.truncate(filled);
        Ok(Answer::new(kind::DATA, id).bytes(&data))
    }

    fn write(&mut self, fields: &mut Fields<'_>) -> Result<(), Failure> {
        let (file, append) = self.file(fields.bytes()?)?;
        let offset = fields.long()?;
        let data = fields.bytes()?;
        if append {
            io::Write::write_all(&mut &*file, data)?;
        } else {
            file.write_all_at(data, offset)?;
        }
        Ok(())
    }

    fn list(&mut self, id: u32, fields: &mut Fields<'_>) -> Result<Answer, Failure> {
        let handle = number(fields.bytes()?)?;
        let Some(Handle::Folder(folder)) = self.handles.get_mut(&handle) else {
            return Err(Failure::NoHandle);
        };
        let (mut names, mut ended) = (Vec::new(), false);
        while names.len() < MOST_NAMES && !ended {
            let Some(entry) = folder.next() else {
                ended = true;
                continue;
            };
            let entry = entry?;
            // Gone since, or not to be seen: as if it were not there.
            if let Ok(metadata) = entry.metadata() {
                names.push((entry.file_name(), metadata));
            }
        }
        if names.is_empty() {
            return Err(Failure::End);
        }
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let answer = Answer::new(kind::NAME, id).number(count);
        Ok(names.iter().fold(answer, |answer, (name, metadata)| {
            let name = name.as_bytes();
            let answer = answer.bytes(name).bytes(&attributes::line(name, metadata));
            attributes::write(answer, metadata)
        }))
    }
}

/// An empty path is the folder that the session is in.
fn path<'a>(fields: &mut Fields<'a>) -> Result<&'a Path, Failure> {
    let bytes = fields.bytes()?;
    let bytes = if bytes.is_empty() { b"." } else { bytes };
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Also of something that is not there yet, in a folder that is.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            Ok(folder.canonicalize()?.join(name))
        }
        other => other,
    }
}

fn number(handle: &[u8]) -> Result<u32, Failure> {
    let bytes = handle.try_into().map_err(|_| Failure::NoHandle)?;
    Ok(u32::from_be_bytes(bytes))
}

fn attrs(id: u32, of: &Metadata) -> Answer {
    attributes::write(Answer::new(kind::ATTRS, id), of)
}

/// One name, of which nothing else is told.
fn name(id: u32, name: &OsStr) -> Answer {
    let name = name.as_bytes();
    Answer::new(kind::NAME, id)
        .number(1)
        .bytes(name)
        .bytes(name)
        .number(0)
}

fn done(id: u32) -> Vec<u8> {
    Answer::new(kind::STATUS, id)
        .number(0)
        .bytes(b"")
        .bytes(b"")
        .finish()
}

fn status(id: u32, failure: &Failure) -> Vec<u8> {
    let (code, message) = failure.status();
    Answer::new(kind::STATUS, id)
        .number(code)
        .bytes(message.as_bytes())
        .bytes(b"en")
        .finish()
}
