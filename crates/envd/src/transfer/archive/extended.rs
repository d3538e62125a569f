//! PAX records: `length name=value\n`, what does not fit into a header.

use super::Error;
use crate::transfer::attributes::{self, Attributes};

const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) modified: Option<i64>,
    pub(super) attributes: Attributes,
}

impl Extended {
    pub(super) fn read_records(&mut self, mut records: &[u8]) -> Result<(), Error> {
        let damaged = || Error::Archive("a damaged extended header".to_owned());
        while !records.is_empty() && records[0] != 0 {
            let (name, value, rest) = record(records).ok_or_else(damaged)?;
            let number = || std::str::from_utf8(value).ok()?.parse().ok();
            match name {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number().ok_or_else(damaged)?),
                b"uid" => self.uid = number(),
                b"gid" => self.gid = number(),
                b"mtime" => self.modified = seconds(value),
                name if name.starts_with(b"GNU.sparse.") => {
                    return Err(Error::Archive(
                        "sparse files are not taken: pack them without --sparse".to_owned(),
                    ));
                }
                name => {
                    if let Some(name) = name.strip_prefix(ATTRIBUTE)
                        && attributes::is_users(name)
                    {
                        self.attributes.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
            records = rest;
        }
        Ok(())
    }
}

/// The first record and what follows it.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    let record = records.get(space + 1..length)?;
    let record = record.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &records[length..]))
}

/// Fractions are dropped.
fn seconds(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_may_hold_anything_in_their_values() {
        let mut extended = Extended::default();
        let records = b"12 path=a\nb\n20 mtime=1700000000\n30 SCHILY.xattr.user.k=a\nb=\x00\x01\n";
        extended.read_records(records).unwrap();
        assert_eq!(extended.path.as_deref(), Some(&b"a\nb"[..]));
        assert_eq!(extended.modified, Some(1_700_000_000));
        let attribute = (b"user.k".to_vec(), b"a\nb=\x00\x01".to_vec());
        assert_eq!(extended.attributes, [attribute]);
    }

    #[test]
    fn damaged_records_and_sparse_files_are_refused() {
        for records in [
            &b"99 path=a\n"[..],
            b"0 a=b\n",
            b"x",
            b"7 a=bcd\n",
            b"5 ab\n",
            b"18446744073709551615 a=b\n",
            b"9 size=x\n",
            b"22 GNU.sparse.major=1\n",
        ] {
            let read = Extended::default().read_records(records);
            assert!(read.is_err(), "{}", String::from_utf8_lossy(records));
        }
    }

    #[test]
    fn only_users_attributes_are_taken() {
        let mut extended = Extended::default();
        let record = b"38 SCHILY.xattr.security.capability=x\n";
        extended.read_records(record).unwrap();
        assert!(extended.attributes.is_empty());
    }
}
