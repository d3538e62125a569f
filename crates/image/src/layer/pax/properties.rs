//! What holds of whatever stands in an extended header.

use proptest::{collection::vec, option, prelude::*};

use super::*;

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut digits = 1..5_usize;
    let digits = digits.find(|digits| (rest + digits).to_string().len() == *digits);
    let start = format!("{} {key}=", rest + digits.unwrap());
    [start.as_bytes(), value, b"\n"].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_comes_back(
        path in option::of(vec(any::<u8>(), 1..200)),
        size in option::of(any::<u64>()),
        xattrs in vec(("[a-z.]{0,10}", vec(any::<u8>(), 0..200)), 0..4),
        mtime in option::of((any::<i32>(), 0..1_000_000_000_u32)),
    ) {
        let mut bytes = Vec::new();
        if let Some(path) = &path {
            bytes.extend(record("path", path));
        }
        if let Some(size) = size {
            bytes.extend(record("size", size.to_string().as_bytes()));
        }
        for (name, value) in &xattrs {
            bytes.extend(record(&format!("{XATTR}{name}"), value));
        }
        if let Some((seconds, nanos)) = mtime {
            let written = match (seconds, nanos) {
                (..0, 1..) => {
                    let whole = if seconds == -1 { "-0".to_owned() } else { (seconds + 1).to_string() };
                    format!("{whole}.{:09}", 1_000_000_000 - nanos)
                }
                _ => format!("{seconds}.{nanos:09}"),
            };
            bytes.extend(record("mtime", written.as_bytes()));
        }
        let found = Extensions::parse(&bytes).unwrap();
        prop_assert_eq!(found.path, path);
        prop_assert_eq!(found.size, size);
        prop_assert_eq!(found.xattrs, xattrs);
        prop_assert_eq!(found.mtime, mtime.map(|(seconds, nanos)| (i64::from(seconds), nanos)));
    }

    #[test]
    fn any_bytes_are_records_or_refused_and_nothing_is_made_up(
        pieces in vec(
            prop_oneof![
                3 => ("(path|linkpath|size|uid|gid|mtime|GNU[.]sparse[.]x|x)", "[0-9.-]{0,12}|.{0,6}")
                    .prop_map(|(key, value)| record(&key, value.as_bytes())),
                1 => "[0-9]{1,20} ?[a-z=]{0,6}\n?".prop_map(String::into_bytes),
                1 => vec(any::<u8>(), 0..8),
            ],
            0..6,
        ),
    ) {
        let bytes = pieces.concat();
        if let Ok(found) = Extensions::parse(&bytes) {
            let texts = [found.path, found.link];
            let kept = texts.iter().flatten().map(Vec::len).sum::<usize>();
            prop_assert!(kept <= bytes.len());
            prop_assert!(found.mtime.is_none_or(|(_, nanos)| nanos < 1_000_000_000));
        }
    }
}
