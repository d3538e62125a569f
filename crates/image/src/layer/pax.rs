//! Extended headers: `<length> <key>=<value>\n`, the length counting itself. Values are bytes and
//! may contain anything, so the length is the only guide.

#[derive(Debug, Default)]
pub(crate) struct Extensions {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<(i64, u32)>,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
    pub(crate) sparse: bool,
}

const XATTR: &str = "SCHILY.xattr.";

impl Extensions {
    pub(crate) fn parse(mut bytes: &[u8]) -> Result<Self, &'static str> {
        const BAD: &str = "its extended header cannot be read";
        let mut found = Self::default();
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or(BAD)?;
            let length: usize = number(bytes.get(..space).ok_or(BAD)?).ok_or(BAD)?;
            let record = bytes.get(space + 1..length).ok_or(BAD)?;
            let record = record.strip_suffix(b"\n").ok_or(BAD)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
            let (key, value) = record.split_at(equals);
            let key = str::from_utf8(key).map_err(|_| BAD)?;
            found
                .set(key, value.get(1..).unwrap_or_default())
                .ok_or(BAD)?;
            bytes = bytes.get(length..).ok_or(BAD)?;
        }
        Ok(found)
    }

    /// An empty value takes an earlier one back.
    fn set(&mut self, key: &str, value: &[u8]) -> Option<()> {
        let given = !value.is_empty();
        match key {
            "path" => self.path = given.then(|| value.to_vec()),
            "linkpath" => self.link = given.then(|| value.to_vec()),
            "size" if given => self.size = Some(number(value)?),
            "uid" if given => self.uid = Some(number(value)?),
            "gid" if given => self.gid = Some(number(value)?),
            "mtime" if given => self.mtime = Some(time(value)?),
            _ if key.starts_with("GNU.sparse.") => self.sparse = true,
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    self.xattrs.push((name.to_owned(), value.to_vec()));
                }
            }
        }
        Some(())
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let digits = text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Seconds, maybe negative, maybe with a fraction.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanoseconds: u32 = number(digits.as_bytes())?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = key.len() + value.len() + 3;
        let digits = [1, 2, 3, 4]
            .into_iter()
            .find(|digits| (rest + digits).to_string().len() == *digits)
            .unwrap();
        let mut bytes = format!("{} {key}=", rest + digits).into_bytes();
        bytes.extend_from_slice(value);
        bytes.push(b'\n');
        bytes
    }

    #[test]
    fn values_may_contain_new_lines_and_any_bytes() {
        let value = [1, b'\n', 0xff, b'=', 0];
        let mut bytes = record("SCHILY.xattr.security.capability", &value);
        bytes.extend(record("path", b"a/b"));
        bytes.extend(record("mtime", b"12.5"));
        let found = Extensions::parse(&bytes).unwrap();
        let expected = ("security.capability".to_owned(), value.to_vec());
        assert_eq!(found.xattrs, [expected]);
        assert_eq!(found.path.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(found.mtime, Some((12, 500_000_000)));
    }

    #[test]
    fn times_before_1970_are_read() {
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"-0"), Some((0, 0)));
        assert_eq!(time(b"1.x"), None);
    }

    #[test]
    fn broken_records_are_refused_without_a_panic() {
        for bad in [
            &b"x"[..],
            b"5",
            b"99 path=a\n",
            b"0 path=a\n",
            b"8 path=a\n",
            b"7 patha\n",
            b"18446744073709551615 path=a\n",
            b"12 size=abc\n",
            b"-10 path=a\n",
        ] {
            assert!(Extensions::parse(bad).is_err(), "{bad:?}");
        }
    }
}
