//! What holds of whatever comes as an archive.

use proptest::{collection::vec, option, prelude::*, sample::Index};
use tar::EntryType;

use super::*;

/// An entry, and how it is written.
#[derive(Debug, Clone)]
struct Written {
    kind: Kind,
    path: Vec<u8>,
    link: Vec<u8>,
    mode: u32,
    ids: (u32, u32),
    modified: u32,
    attribute: Option<Vec<u8>>,
    content: Vec<u8>,
    /// With GNU's headers for long names, or with POSIX's.
    gnu: bool,
}

fn written() -> impl Strategy<Value = Written> {
    let kind = prop_oneof![
        4 => Just(Kind::File),
        2 => Just(Kind::Directory),
        1 => Just(Kind::Symlink),
        1 => Just(Kind::HardLink),
        1 => Just(Kind::Fifo),
    ];
    // Any bytes but those that mean something: the end of a name, and a directory.
    let name = vec(1..=u8::MAX, 0..250).prop_map(|name| [b"x", &name[..], b"x"].concat());
    let numbers = (0..=0o7777_u32, (0..u32::MAX, 0..u32::MAX), any::<u32>());
    let content = vec(any::<u8>(), 0..1200);
    let rest = (option::of(vec(any::<u8>(), 0..50)), content, any::<bool>());
    (kind, name.clone(), name, numbers, rest).prop_map(
        |(kind, path, link, (mode, ids, modified), (attribute, content, gnu))| Written {
            kind,
            path,
            link: if matches!(kind, Kind::Symlink | Kind::HardLink) {
                link
            } else {
                Vec::new()
            },
            mode,
            ids,
            modified,
            attribute,
            content: if kind == Kind::File {
                content
            } else {
                Vec::new()
            },
            gnu,
        },
    )
}

fn record(name: &str, value: &[u8]) -> Vec<u8> {
    let rest = name.len() + value.len() + 3;
    let length = (1..).map(|digits| rest + digits);
    let length = length
        .zip(1..)
        .find(|(length, digits)| length.to_string().len() == *digits);
    let start = format!("{} {name}=", length.unwrap().0);
    [start.as_bytes(), value, b"\n"].concat()
}

#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
    headers: Vec<usize>,
}

impl Tar {
    fn block(&mut self, mut header: Header, content: &[u8]) {
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.headers.push(self.bytes.len());
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    fn extra(&mut self, kind: u8, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::new(kind));
        header.set_mode(0o644);
        self.block(header, content);
    }

    fn add(&mut self, entry: &Written) {
        let mut records = Vec::new();
        let mut header = Header::new_gnu();
        for (field, kind, name, text) in [
            (0, b'L', "path", &entry.path),
            (157, b'K', "linkpath", &entry.link),
        ] {
            if text.len() <= 100 {
                header.as_mut_bytes()[field..field + text.len()].copy_from_slice(text);
            } else if entry.gnu {
                self.extra(kind, &[text.as_slice(), b"\0"].concat());
            } else {
                records.extend(record(name, text));
            }
        }
        if let Some(value) = &entry.attribute {
            records.extend(record("SCHILY.xattr.user.a", value));
        }
        if !records.is_empty() {
            self.extra(b'x', &records);
        }
        header.set_entry_type(match entry.kind {
            Kind::File => EntryType::Regular,
            Kind::Directory => EntryType::Directory,
            Kind::Symlink => EntryType::Symlink,
            Kind::HardLink => EntryType::Link,
            Kind::Fifo => EntryType::Fifo,
        });
        header.set_mode(entry.mode);
        header.set_uid(entry.ids.0.into());
        header.set_gid(entry.ids.1.into());
        header.set_mtime(entry.modified.into());
        self.block(header, &entry.content);
    }

    fn of(entries: &[Written]) -> Self {
        let mut tar = Self::default();
        for entry in entries {
            tar.add(entry);
        }
        tar.bytes.extend([0; 2 * BLOCK]);
        tar
    }
}

fn read(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, Error> {
    let mut input = bytes;
    let mut archive = Archive::new(decompress(&mut input)?);
    let mut found = Vec::new();
    while let Some(entry) = archive.next()? {
        let mut content = Vec::new();
        archive.read_to_end(&mut content).map_err(broken)?;
        found.push((entry, content));
    }
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_come_back(entries in vec(written(), 0..5)) {
        let found = read(&Tar::of(&entries).bytes).unwrap();
        prop_assert_eq!(found.len(), entries.len());
        for ((found, content), entry) in found.into_iter().zip(entries) {
            prop_assert_eq!((found.kind, found.path, found.link), (entry.kind, entry.path, entry.link));
            prop_assert_eq!((found.mode, (found.uid, found.gid)), (entry.mode, entry.ids));
            prop_assert_eq!(found.modified, i64::from(entry.modified));
            let attributes = entry.attribute.map(|value| (b"user.a".to_vec(), value));
            prop_assert_eq!(found.attributes, Vec::from_iter(attributes));
            prop_assert_eq!(content, entry.content);
        }
    }

    #[test]
    fn an_archive_that_ends_too_early_is_refused(
        entries in vec(written(), 0..3),
        end in any::<Index>(),
    ) {
        let bytes = Tar::of(&entries).bytes;
        let end = end.index(bytes.len() - BLOCK);
        prop_assert!(matches!(read(&bytes[..end]), Err(Error::Archive(_))));
    }

    #[test]
    fn any_damage_is_an_archive_or_a_refusal(
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
            Err(error) => prop_assert!(matches!(error, Error::Archive(_)), "{error:?}"),
        }
    }

    #[test]
    fn any_bytes_are_an_archive_or_a_refusal(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..1500),
            vec(any::<u8>(), 0..60).prop_map(|bytes| [&GZIP[..], &[8, 0], &bytes].concat()),
        ],
    ) {
        prop_assert!(matches!(read(&bytes), Ok(_) | Err(Error::Archive(_))));
    }

    #[test]
    fn any_records_are_read_or_refused_and_only_users_attributes_are_kept(
        pieces in vec(
            prop_oneof![
                3 => ("(path|size|uid|mtime|SCHILY.xattr.(user|trusted).a|x)", ".{0,12}")
                    .prop_map(|(name, value)| record(&name, value.as_bytes())),
                1 => "[0-9]{1,20} ?[a-z=]{0,6}\n?".prop_map(String::into_bytes),
                1 => vec(any::<u8>(), 0..8),
            ],
            0..6,
        ),
    ) {
        let records = pieces.concat();
        let mut extended = Extended::default();
        match extended.read_records(&records) {
            Ok(()) => {
                let kept = extended.attributes.iter().map(|(name, value)| name.len() + value.len());
                prop_assert!(kept.sum::<usize>() <= records.len());
                prop_assert!(extended.attributes.iter().all(|(name, _)| name == b"user.a"));
            }
            Err(error) => prop_assert!(matches!(error, Error::Archive(_))),
        }
    }
}
