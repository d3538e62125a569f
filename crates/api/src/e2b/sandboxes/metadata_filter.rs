//! The `metadata` filter of lists, as E2B's clients write it: each key and value percent-encoded,
//! the pairs form-encoded, and all of it percent-encoded again as a query value.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use crate::shared::error::{ApiError, Result};

/// All pairs must match exactly.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MetadataFilter(Vec<(String, String)>);

impl MetadataFilter {
    /// `value` is the query value after the one decoding that every query gets.
    pub(super) fn parse(value: &str) -> Result<Self> {
        let read = || {
            let pairs = unescape(value)?;
            let pairs =
                pairs
                    .split('&')
                    .map(|pair| match pair.split('=').collect::<Vec<_>>()[..] {
                        [key, value] => Some((unescape(key)?, unescape(value)?)),
                        _ => None,
                    });
            pairs.collect::<Option<Vec<_>>>()
        };
        read()
            .map(Self)
            .ok_or_else(|| ApiError::bad_request("Invalid metadata filter"))
    }

    pub(super) fn matches(&self, metadata: &BTreeMap<String, String>) -> bool {
        self.0
            .iter()
            .all(|(key, value)| metadata.get(key) == Some(value))
    }
}

fn unescape(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let escapes_are_whole = spaced.split('%').skip(1).all(|rest| {
        let bytes = rest.as_bytes();
        bytes.len() >= 2 && bytes[..2].iter().all(u8::is_ascii_hexdigit)
    });
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?.into_owned();
    escapes_are_whole.then_some(decoded)
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &str) -> Vec<(String, String)> {
        let (_, value) = form_urlencoded::parse(query.as_bytes()).next().unwrap();
        MetadataFilter::parse(&value).unwrap().0
    }

    #[test]
    fn three_layers_of_encoding_are_taken_off() {
        let query = "metadata=a%252520b%3Dc%252526d%25253D%2525C3%2525A9";
        assert_eq!(pairs(query), [("a b".to_owned(), "c&d=é".to_owned())]);
    }

    #[test]
    fn a_filter_typed_by_hand_works_too() {
        let query = "metadata=user%3Dabc%26app%3Dprod";
        let expected = [("user", "abc"), ("app", "prod")];
        assert_eq!(
            pairs(query),
            expected.map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
    }

    #[test]
    fn broken_filters_are_refused() {
        for bad in [
            "a", "a=b=c", "a=b&", "&", "a=%", "a=%f", "a=%zz", "a=%25f", "a=%25ff",
        ] {
            assert!(MetadataFilter::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_pairs_must_match() {
        let filter = MetadataFilter::parse("a=1&b=2").unwrap();
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        assert!(filter.matches(&map(&[("a", "1"), ("b", "2"), ("c", "3")])));
        assert!(!filter.matches(&map(&[("a", "1")])));
        assert!(!filter.matches(&BTreeMap::new()));
    }
}
