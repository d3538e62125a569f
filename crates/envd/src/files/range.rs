//! `Range` and the conditional headers of a download.

use http::{HeaderMap, header};

use crate::time;

/// What part of the file to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    NotModified,
    Slice { first: u64, length: u64 },
    Unsatisfiable,
}

/// Whether the client asked for something that only the plain bytes can answer.
pub(super) fn is_conditional(headers: &HeaderMap) -> bool {
    [
        header::RANGE,
        header::IF_MODIFIED_SINCE,
        header::IF_NONE_MATCH,
        header::IF_RANGE,
    ]
    .iter()
    .any(|name| headers.contains_key(name))
}

/// Files have no entity tags here, only the second of their last change.
pub(super) fn part(headers: &HeaderMap, size: u64, modified: i64) -> Part {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    let date = |name| text(name).and_then(time::parse_http_date);

    match text(header::IF_NONE_MATCH) {
        Some("*") => return Part::NotModified,
        Some(_) => {}
        None => {
            if date(header::IF_MODIFIED_SINCE).is_some_and(|since| modified <= since) {
                return Part::NotModified;
            }
        }
    }
    let Some(range) = text(header::RANGE) else {
        return Part::Whole;
    };
    if headers.contains_key(header::IF_RANGE) && date(header::IF_RANGE) != Some(modified) {
        return Part::Whole;
    }
    slice(range, size)
}

/// One range only; several, or another unit, may be answered with the whole file.
fn slice(range: &str, size: u64) -> Part {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .filter(|range| !range.contains(','))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Part::Whole;
    };
    let (first, end) = match (first.trim(), last.trim()) {
        ("", "") => return Part::Whole,
        ("", suffix) => match suffix.parse::<u64>() {
            Ok(length) => (size.saturating_sub(length), size),
            Err(_) => return Part::Whole,
        },
        (first, "") => match first.parse() {
            Ok(first) => (first, size),
            Err(_) => return Part::Whole,
        },
        (first, last) => match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => (first, last.saturating_add(1).min(size)),
            _ => return Part::Whole,
        },
    };
    if first >= end {
        Part::Unsatisfiable
    } else {
        Part::Slice {
            first,
            length: end - first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(header::HeaderName, &str)]) -> Part {
        let headers = pairs
            .iter()
            .map(|(k, v)| (k.clone(), v.parse().unwrap()))
            .collect();
        part(&headers, 10, 784_111_777)
    }

    #[test]
    fn single_ranges_are_slices() {
        let slice = |first, length| Part::Slice { first, length };
        let range = |text| of(&[(header::RANGE, text)]);
        assert_eq!(range("bytes=0-3"), slice(0, 4));
        assert_eq!(range("bytes=4-"), slice(4, 6));
        assert_eq!(range("bytes=-3"), slice(7, 3));
        assert_eq!(range("bytes=-99"), slice(0, 10));
        assert_eq!(range("bytes=8-99"), slice(8, 2));
    }

    #[test]
    fn ranges_past_the_end_cannot_be_satisfied() {
        assert_eq!(of(&[(header::RANGE, "bytes=10-")]), Part::Unsatisfiable);
        assert_eq!(of(&[(header::RANGE, "bytes=-0")]), Part::Unsatisfiable);
    }

    #[test]
    fn what_is_not_understood_is_the_whole_file() {
        for text in [
            "bytes=5-2",
            "lines=0-1",
            "bytes=0-1,4-5",
            "bytes=x-",
            "bytes=-",
            "0-1",
        ] {
            assert_eq!(of(&[(header::RANGE, text)]), Part::Whole, "{text}");
        }
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        let (same, before) = (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
        );
        assert_eq!(of(&[(header::IF_MODIFIED_SINCE, same)]), Part::NotModified);
        assert_eq!(of(&[(header::IF_MODIFIED_SINCE, before)]), Part::Whole);
        assert_eq!(of(&[(header::IF_NONE_MATCH, "*")]), Part::NotModified);
        let ranged = |date| of(&[(header::RANGE, "bytes=0-0"), (header::IF_RANGE, date)]);
        assert_eq!(
            ranged(same),
            Part::Slice {
                first: 0,
                length: 1
            }
        );
        assert_eq!(ranged(before), Part::Whole);
    }
}
