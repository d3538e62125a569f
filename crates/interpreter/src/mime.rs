//! What a kernel displays, by MIME type, and the fields that E2B has for them.
//!
//! Values are kept as the JSON text that the kernel wrote: their order, their numbers and their
//! nested nulls reach the client unchanged, and a large table is not taken apart.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// MIME types in the order in which the kernel gave them.
#[derive(Default)]
pub(crate) struct Bundle(Vec<(String, Box<RawValue>)>);

/// A result's fields and what has no field, ready to be written.
pub(crate) struct Fields<'a> {
    pub(crate) known: Vec<(&'static str, Value<'a>)>,
    pub(crate) extra: Vec<(&'a str, &'a RawValue)>,
}

pub(crate) enum Value<'a> {
    Text(String),
    Raw(&'a RawValue),
}

/// In the order of the fields in the event.
const TEXTS: [(&str, &str); 9] = [
    ("text", "text/plain"),
    ("html", "text/html"),
    ("markdown", "text/markdown"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpeg", "image/jpeg"),
    ("pdf", "application/pdf"),
    ("latex", "text/latex"),
    ("javascript", "application/javascript"),
];
const OBJECTS: [(&str, &str); 3] = [
    ("json", "application/json"),
    ("data", "e2b/data"),
    ("chart", "e2b/chart"),
];

/// No display has this many; without a bound, comparing them would take for ever.
const MAX_TYPES: usize = 256;

impl Bundle {
    #[cfg(test)]
    pub(crate) fn parse(json: &str) -> Self {
        serde_json::from_str(json).unwrap()
    }

    pub(crate) fn fields(&self) -> Fields<'_> {
        let mut fields = Fields {
            known: Vec::new(),
            extra: Vec::new(),
        };
        for (mime, raw) in &self.0 {
            if let Some((field, _)) = OBJECTS.iter().find(|(_, known)| known == mime) {
                fields.known.push((field, Value::Raw(raw)));
                continue;
            }
            let text = TEXTS
                .iter()
                .find(|(_, known)| known == mime)
                .and_then(|(field, _)| Some((*field, text(raw)?)));
            match text {
                Some(("text", text)) => {
                    let bare = without_quotes(&text).to_owned();
                    fields.known.push(("text", Value::Text(bare)));
                }
                Some((field, text)) => fields.known.push((field, Value::Text(text))),
                None => fields.extra.push((mime, raw)),
            }
        }
        fields
    }
}

/// A string, or the list of lines that notebook files have in its place.
fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str::<String>(raw.get())
        .or_else(|_| serde_json::from_str::<Vec<String>>(raw.get()).map(|lines| lines.concat()))
        .ok()
}

/// The value of a string shows bare: one pair of equal quotes goes.
fn without_quotes(text: &str) -> &str {
    for quote in ['\'', '"'] {
        let inner = text
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner;
        }
    }
    text
}

impl<'de> Deserialize<'de> for Bundle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Bundle;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of MIME types")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bundle, A::Error> {
                let mut entries: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((mime, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    // The last of two equal keys counts, as in any JSON object.
                    entries.retain(|(known, _)| *known != mime);
                    if entries.len() < MAX_TYPES {
                        entries.push((mime, value));
                    }
                }
                Ok(Bundle(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.0.iter().map(|(mime, _)| mime))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_of_equal_quotes_goes() {
        for (text, bare) in [
            ("'a'", "a"),
            ("\"it's\"", "it's"),
            ("''a''", "'a'"),
            ("'", "'"),
            ("'a\"", "'a\""),
        ] {
            assert_eq!(without_quotes(text), bare, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_string_is_left_to_extra() {
        let bundle = Bundle::parse(r#"{"text/plain": 5, "image/png": ["ab", "cd"]}"#);
        let fields = bundle.fields();
        assert_eq!(fields.extra[0].0, "text/plain");
        assert!(matches!(&fields.known[..], [("png", Value::Text(png))] if png == "abcd"));
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let bundle = Bundle::parse(r#"{"text/html": "a", "text/html": "b"}"#);
        assert!(matches!(&bundle.fields().known[..], [("html", Value::Text(html))] if html == "b"));
    }
}
