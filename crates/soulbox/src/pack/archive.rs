//! The tar file of a COPY and the hash that it is known by.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{Stream, stream};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::Selection;
use crate::report::{advice, warning};

/// One for all files, so that the same content gives the same archive. Not 0: zip files, and so
/// wheels and jars, cannot hold times before 1980.
const TIME: u64 = 946_684_800;
const CHUNK: usize = 256 * 1024;

/// A file that is written in the Dockerfile.
#[derive(Debug)]
pub(crate) struct InlineFile {
    pub name: String,
    pub content: String,
}

/// Bytes to upload, in a file without a name.
#[derive(Debug)]
pub(crate) struct Archive {
    file: File,
    pub length: u64,
    /// 64 hex digits.
    pub hash: String,
}

impl Archive {
    /// Packs what was selected, and files that are not on the disk beside it.
    pub(crate) fn pack(selection: &Selection, inline: &[InlineFile]) -> Result<Self> {
        let file = tempfile::tempfile().context("a temporary file for the build context")?;
        let gzip = GzEncoder::new(BufWriter::new(file), Compression::fast());
        let mut builder = Builder::new(Hashing {
            inner: gzip,
            hash: Sha256::new(),
        });
        for (name, path) in &selection.files {
            append(&mut builder, name, path).with_context(|| path.display().to_string())?;
        }
        for file in inline {
            let mut header = header(EntryType::Regular, 0o644, file.content.len() as u64);
            builder.append_data(&mut header, &file.name, file.content.as_bytes())?;
        }
        let hashing = builder.into_inner()?;
        let hash = hex(&hashing.hash.finalize());
        let file = hashing
            .inner
            .finish()?
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Self::of(file, hash)
    }

    /// A file as it is.
    pub(crate) fn whole(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            bail!("{} is not a file", path.display());
        }
        let hash = hash_of(&file)?;
        Self::of(file, hash)
    }

    fn of(file: File, hash: String) -> Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length, hash })
    }

    /// From the beginning, as often as needed; `moved` hears of every chunk.
    pub(crate) fn stream(
        &self,
        moved: impl Fn(u64) + Send + 'static,
    ) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static> {
        let file = std::sync::Arc::new(self.file.try_clone()?);
        let state = (file, 0_u64, self.length, moved);
        Ok(stream::try_unfold(
            state,
            |(file, at, length, moved)| async move {
                if at >= length {
                    return Ok(None);
                }
                let wanted = usize::try_from(length - at).unwrap_or(CHUNK).min(CHUNK);
                let source = file.clone();
                let chunk = tokio::task::spawn_blocking(move || {
                    let mut buffer = vec![0; wanted];
                    source.read_exact_at(&mut buffer, at)?;
                    Ok::<_, io::Error>(Bytes::from(buffer))
                })
                .await
                .map_err(io::Error::other)??;
                moved(chunk.len() as u64);
                let next = at + chunk.len() as u64;
                Ok(Some((chunk, (file, next, length, moved))))
            },
        ))
    }
}

/// SHA-256 of a file's content.
fn hash_of(mut file: &File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            length => hash.update(&buffer[..length]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

fn append<W: Write>(builder: &mut Builder<W>, name: &str, path: &Path) -> Result<()> {
    let metadata = path.symlink_metadata()?;
    let mode = metadata.mode() & 0o7777;
    if metadata.is_dir() {
        let mut header = header(EntryType::Directory, mode, 0);
        builder.append_data(&mut header, format!("{name}/"), io::empty())?;
    } else if metadata.is_symlink() {
        let target = path.read_link()?;
        let mut header = header(EntryType::Symlink, 0o777, 0);
        builder.append_link(&mut header, name, target)?;
    } else if metadata.is_file() {
        let length = metadata.len();
        let mut header = header(EntryType::Regular, mode, length);
        let mut content = Counted {
            inner: File::open(path)?.take(length),
            count: 0,
        };
        builder.append_data(&mut header, name, &mut content)?;
        if content.count != length {
            let hint = "build again when nothing writes to the build context";
            return Err(advice("it became shorter while it was packed", hint));
        }
    } else {
        warning(&format!(
            "{} is left out: it is neither file, folder nor link",
            path.display()
        ));
    }
    Ok(())
}

/// Owner, time and device say where an archive was made, not what is in it.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(TIME);
    header.set_uid(0);
    header.set_gid(0);
    header
}

struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count += length as u64;
        Ok(length)
    }
}

/// The hash is of what is in the archive, not of how it is compressed.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.hash.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        time::{Duration, SystemTime},
    };

    use futures_util::TryStreamExt;

    use super::*;
    use crate::pack::{Context, Ignore};

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/run.sh"), "#!/bin/sh\n").unwrap();
        let executable = fs::Permissions::from_mode(0o750);
        fs::set_permissions(folder.path().join("d/run.sh"), executable).unwrap();
        symlink("run.sh", folder.path().join("d/link")).unwrap();
        fs::write(folder.path().join("z"), vec![7; 300_000]).unwrap();
        folder
    }

    fn pack(folder: &Path) -> Archive {
        let context = Context::open(folder, Ignore::default()).unwrap();
        let selection = context.select(&[".".to_owned()], 0, "/").unwrap();
        Archive::pack(&selection, &[]).unwrap()
    }

    async fn bytes(archive: &Archive) -> Vec<u8> {
        let chunks = archive.stream(|_| {}).unwrap();
        let chunks: Vec<Bytes> = chunks.try_collect().await.unwrap();
        chunks.concat()
    }

    #[tokio::test]
    async fn the_same_content_gives_the_same_bytes_wherever_and_whenever_it_was_written() {
        let (one, other) = (folder(), folder());
        let old = SystemTime::now() - Duration::from_secs(1000);
        let file = File::options()
            .write(true)
            .open(other.path().join("z"))
            .unwrap();
        file.set_modified(old).unwrap();
        let (one, other) = (pack(one.path()), pack(other.path()));
        assert_eq!(one.hash, other.hash);
        assert_eq!(one.hash.len(), 64);
        assert_eq!(bytes(&one).await, bytes(&other).await);
        assert_eq!(bytes(&one).await.len() as u64, one.length);
    }

    #[test]
    fn content_modes_and_links_change_the_hash() {
        let changes: [fn(&Path); 3] = [
            |root| fs::write(root.join("z"), "other").unwrap(),
            |root| {
                let mode = fs::Permissions::from_mode(0o644);
                fs::set_permissions(root.join("d/run.sh"), mode).unwrap();
            },
            |root| {
                fs::remove_file(root.join("d/link")).unwrap();
                symlink("other", root.join("d/link")).unwrap();
            },
        ];
        let original = pack(folder().path()).hash;
        for change in changes {
            let changed = folder();
            change(changed.path());
            assert_ne!(pack(changed.path()).hash, original);
        }
    }

    #[tokio::test]
    async fn an_archive_holds_modes_and_links_and_nothing_of_this_machine() {
        let archive = pack(folder().path());
        let bytes = bytes(&archive).await;
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut seen = Vec::new();
        for entry in tar.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), TIME);
            let link = entry.link_name().unwrap().map(std::borrow::Cow::into_owned);
            seen.push((
                entry.path().unwrap().display().to_string(),
                header.mode().unwrap(),
                link,
            ));
        }
        assert_eq!(seen[1], ("d/link".to_owned(), 0o777, Some("run.sh".into())));
        assert_eq!(seen[2], ("d/run.sh".to_owned(), 0o750, None));
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn an_inline_file_needs_no_disk() {
        let file = InlineFile {
            name: "a".to_owned(),
            content: "x".to_owned(),
        };
        let archive = Archive::pack(&Selection::default(), &[file]).unwrap();
        assert!(archive.length > 0);
    }
}
