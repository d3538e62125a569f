//! What holds of whatever is in an archive that may be a bundle.

use proptest::{collection::vec, prelude::*, sample::select};
use tar::{EntryType, Header};

use super::*;

fn name() -> impl Strategy<Value = String> {
    let part = select(vec![
        "blobs",
        "sha256",
        "a.json",
        "manifest.json",
        "oci-layout",
        "..",
        ".",
        "",
    ]);
    // A slash at its end would make a directory of it.
    vec(part, 1..4).prop_map(|parts| parts.join("/").trim_end_matches('/').to_owned())
}

fn tar(entries: &[(u8, String, String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, name, link, content) in entries {
        let content: &[u8] = if *kind == b'0' { content } else { b"" };
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(EntryType::new(*kind));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_part_is_inside_the_archive_and_what_was_written(
        entries in vec(
            (select(b"00125".to_vec()), name(), name(), vec(any::<u8>(), 0..600)),
            0..6,
        ),
        asked in name(),
    ) {
        let bytes = tar(&entries);
        let archive = Archive::list(&bytes[..], 100).unwrap();
        let names = entries.iter().map(|(_, name, _, _)| name);
        for name in names.chain([&asked]) {
            let Some(part) = archive.part(name) else {
                continue;
            };
            let range = usize::try_from(part.offset).unwrap()
                ..usize::try_from(part.offset + part.size).unwrap();
            let found = bytes.get(range).unwrap();
            prop_assert!(entries.iter().any(|(kind, _, _, content)| *kind == b'0' && content == found));
        }
    }

    #[test]
    fn links_lead_to_names_without_dots_or_nowhere(
        name in name(),
        target in prop_oneof![name(), ".{0,12}"],
        from_root in any::<bool>(),
    ) {
        let Some(name) = plain_name(name.as_bytes()) else {
            return Ok(());
        };
        if let Some(path) = link_target(&name, &target, from_root) {
            let normal = |part| matches!(part, Component::Normal(_));
            prop_assert!(Path::new(&path).components().all(normal), "{path}");
        }
    }
}
