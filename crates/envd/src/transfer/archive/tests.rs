use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::*;

fn entries(bytes: &[u8]) -> Result<Vec<(String, String)>, Error> {
    let mut input = bytes;
    let mut archive = Archive::new(decompress(&mut input)?);
    let mut found = Vec::new();
    while let Some(entry) = archive.next()? {
        let mut content = String::new();
        archive.read_to_string(&mut content).map_err(broken)?;
        found.push((show(&entry.path), content));
    }
    Ok(found)
}

fn sample() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in [("a".to_owned(), "1"), ("d/".repeat(150) + "b", "22")] {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn plain_and_gzip_are_told_apart_by_their_first_bytes() {
    let plain = sample();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&plain).unwrap();
    let long = "d/".repeat(150) + "b";
    let expected = [
        ("a".to_owned(), "1".to_owned()),
        (show(long.as_bytes()), "22".to_owned()),
    ];
    assert_eq!(entries(&plain).unwrap(), expected);
    assert_eq!(entries(&gzip.finish().unwrap()).unwrap(), expected);
}

#[test]
fn every_cut_is_noticed() {
    let plain = sample();
    let end = plain.len() - 1024;
    for length in [0, 1, 100, 512, 513, 1024, end - 1, end, end + 511] {
        let error = entries(&plain[..length]).unwrap_err().to_string();
        assert!(error.ends_with("cut off"), "{length}: {error}");
    }
}

#[test]
fn what_is_no_archive_is_refused() {
    for bytes in [&[b'x'; 2048][..], &[0x1f, 0x8b, 1, 2, 3, 4, 5]] {
        assert!(matches!(entries(bytes), Err(Error::Archive(_))));
    }
}

#[test]
fn a_huge_extended_header_is_refused_before_it_is_read() {
    for kind in [b'x', b'L', b'K'] {
        let mut header = Header::new_ustar();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(1 << 40);
        header.set_cksum();
        let error = entries(header.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("an extended header of"), "{error}");
    }
}

/// Each has a bound, but there can be any number of them before one entry.
#[test]
fn extended_headers_of_one_entry_are_bounded_together() {
    let value = "a".repeat(600 << 10);
    let record = format!("614428 SCHILY.xattr.user.a={value}\n");
    assert!(record.starts_with(&record.len().to_string()));
    let mut header = Header::new_ustar();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(record.len() as u64);
    header.set_cksum();
    let mut one = [header.as_bytes().as_slice(), record.as_bytes()].concat();
    one.resize(one.len().next_multiple_of(BLOCK), 0);
    let error = entries(&one.repeat(2)).unwrap_err().to_string();
    assert!(error.contains("an extended header of"), "{error}");
}

#[test]
fn devices_are_refused() {
    let mut header = Header::new_ustar();
    header.set_path("dev").unwrap();
    header.set_entry_type(tar::EntryType::Char);
    header.set_size(0);
    header.set_mode(0o600);
    header.set_cksum();
    assert!(entries(header.as_bytes()).is_err());
}

#[test]
fn ids_that_mean_nobody_or_nothing_are_nobodys() {
    for id in [u64::from(u32::MAX), 1 << 40] {
        let mut header = Header::new_gnu();
        header.set_path("f").unwrap();
        header.set_size(0);
        header.set_mode(0o600);
        header.set_uid(id);
        header.set_gid(7);
        header.set_cksum();
        let entry = Archive::new(header.as_bytes().as_slice()).next();
        let entry = entry.unwrap().unwrap();
        assert_eq!((entry.uid, entry.gid), (NOBODY, 7));
    }
}
