//! What holds of whatever comes as a tar.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

#[derive(Debug, Clone)]
struct Written {
    kind: u8,
    path: Vec<u8>,
    link: Vec<u8>,
    mode: u32,
    ids: (u32, u32),
    mtime: u32,
    content: Vec<u8>,
    /// With GNU's headers for long names, or with POSIX's.
    gnu: bool,
}

fn written() -> impl Strategy<Value = Written> {
    let kind = proptest::sample::select(b"0000123456".to_vec());
    // Any bytes but those that mean something: the end of a name, and a directory.
    let name = vec(1..=u8::MAX, 0..250).prop_map(|name| [b"x", &name[..], b"x"].concat());
    let numbers = (0..=0o7777_u32, any::<(u32, u32)>(), any::<u32>());
    let rest = (vec(any::<u8>(), 0..1200), any::<bool>());
    (kind, name.clone(), name, numbers, rest).prop_map(
        |(kind, path, link, (mode, ids, mtime), (content, gnu))| Written {
            kind,
            path,
            link: if matches!(kind, b'1' | b'2') {
                link
            } else {
                Vec::new()
            },
            mode,
            ids,
            mtime,
            content: if kind == b'0' { content } else { Vec::new() },
            gnu,
        },
    )
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut digits = 1..5_usize;
    let digits = digits.find(|digits| (rest + digits).to_string().len() == *digits);
    let start = format!("{} {key}=", rest + digits.unwrap());
    [start.as_bytes(), value, b"\n"].concat()
}

#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
    headers: Vec<usize>,
}

impl Tar {
    fn of(entries: &[Written]) -> Self {
        let mut tar = Self::default();
        for entry in entries {
            tar.add(entry);
        }
        tar.bytes.extend([0; 2 * BLOCK]);
        tar
    }

    fn add(&mut self, entry: &Written) {
        let mut header = Header::new_gnu();
        let mut records = Vec::new();
        for (field, kind, key, text) in [
            (0, b'L', "path", &entry.path),
            (157, b'K', "linkpath", &entry.link),
        ] {
            if text.len() <= 100 {
                header.as_mut_bytes()[field..field + text.len()].copy_from_slice(text);
            } else if entry.gnu {
                self.block(Header::new_gnu(), kind, &[text.as_slice(), b"\0"].concat());
            } else {
                records.extend(record(key, text));
            }
        }
        if !records.is_empty() {
            self.block(Header::new_gnu(), b'x', &records);
        }
        header.set_mode(entry.mode);
        header.set_uid(entry.ids.0.into());
        header.set_gid(entry.ids.1.into());
        header.set_mtime(entry.mtime.into());
        self.block(header, entry.kind, &entry.content);
    }

    fn block(&mut self, mut header: Header, kind: u8, content: &[u8]) {
        header.set_entry_type(EntryType::new(kind));
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.headers.push(self.bytes.len());
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }
}

fn read(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, LayerError> {
    let mut reader = TarReader::new(bytes);
    let mut found = Vec::new();
    while let Some(entry) = reader.next()? {
        let mut content = Vec::new();
        let mut buffer = [0; 100];
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                count => content.extend_from_slice(&buffer[..count]),
            }
        }
        found.push((entry, content));
    }
    Ok(found)
}

fn is_refusal(error: &LayerError) -> bool {
    matches!(error, LayerError::Damaged(_) | LayerError::Entry { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_come_back(entries in vec(written(), 0..5)) {
        let tar = Tar::of(&entries).bytes;
        let found = read(&tar).unwrap();
        prop_assert_eq!(found.len(), entries.len());
        for ((found, content), entry) in found.into_iter().zip(entries) {
            let kind = match entry.kind {
                b'0' => Kind::File,
                b'1' => Kind::HardLink,
                b'2' => Kind::Symlink,
                b'5' => Kind::Directory,
                b'6' => Kind::Fifo,
                _ => Kind::Device,
            };
            prop_assert_eq!((found.kind, found.path, found.link), (kind, entry.path, entry.link));
            let ids = (u64::from(entry.ids.0), u64::from(entry.ids.1));
            prop_assert_eq!((found.mode, (found.uid, found.gid)), (entry.mode, ids));
            prop_assert_eq!(found.mtime, (i64::from(entry.mtime), 0));
            prop_assert_eq!(found.size, content.len() as u64);
            let start = usize::try_from(found.offset).unwrap();
            prop_assert_eq!(&tar[start..start + content.len()], &content[..]);
            prop_assert_eq!(content, entry.content);
        }
    }

    #[test]
    fn a_tar_that_ends_in_an_entry_is_refused(
        entries in vec(written(), 1..4),
        end in any::<Index>(),
    ) {
        let tar = Tar::of(&entries);
        let last = *tar.headers.last().unwrap();
        let end = end.index(tar.bytes.len() - 2 * BLOCK);
        match read(&tar.bytes[..end]) {
            // Between two entries it may end without a mark.
            Ok(found) => prop_assert!(end % BLOCK == 0 && found.len() < entries.len()),
            Err(error) => prop_assert!(is_refusal(&error), "{error:?}"),
        }
        prop_assert!(read(&tar.bytes[..=last]).is_err());
    }

    #[test]
    fn any_damage_is_a_tar_or_a_refusal(
        entries in vec(written(), 1..4),
        damage in vec((any::<Index>(), 0..BLOCK, any::<u8>()), 1..6),
    ) {
        let mut tar = Tar::of(&entries);
        for (header, at, byte) in damage {
            // With a sum that is right: the fields are what is to be read.
            let start = *header.get(&tar.headers);
            let mut header = Header::new_old();
            header.as_mut_bytes().copy_from_slice(&tar.bytes[start..start + BLOCK]);
            header.as_mut_bytes()[at] = byte;
            header.set_cksum();
            tar.bytes[start..start + BLOCK].copy_from_slice(header.as_bytes());
        }
        match read(&tar.bytes) {
            Ok(found) => {
                let kept = found.iter().map(|(entry, content)| entry.path.len() + content.len());
                prop_assert!(kept.sum::<usize>() <= tar.bytes.len());
            }
            Err(error) => prop_assert!(is_refusal(&error), "{error:?}"),
        }
    }

    #[test]
    fn any_bytes_are_a_tar_or_a_refusal(bytes in vec(any::<u8>(), 0..1500)) {
        if let Err(error) = read(&bytes) {
            prop_assert!(is_refusal(&error), "{error:?}");
        }
    }
}
