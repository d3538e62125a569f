//! A ring of recent log entries, which the node collects with `GET /soulbox/logs`.

use std::{cell::RefCell, collections::BTreeMap, collections::VecDeque};

use serde::Serialize;
use soulbox_types::UnixMillis;

const MAX_ENTRIES: usize = 1_000;
const MAX_BYTES: usize = 128 << 10;
/// Longer values are cut: a command line may be megabytes.
const MAX_VALUE: usize = 512;

/// The shape is the node's `LogEntry`.
#[derive(Serialize)]
struct Entry<'a> {
    at: UnixMillis,
    level: &'a str,
    logger: &'a str,
    message: &'a str,
    fields: BTreeMap<&'a str, String>,
}

#[derive(Default)]
pub(crate) struct Logs {
    ring: RefCell<Ring>,
}

/// Entries are kept as JSON: a quarter of what they take as structures.
#[derive(Default)]
struct Ring {
    entries: VecDeque<Box<str>>,
    bytes: usize,
}

type Fields<const N: usize> = [(&'static str, String); N];

impl Logs {
    pub(crate) fn info<const N: usize>(&self, logger: &str, message: &str, fields: Fields<N>) {
        self.add("info", logger, message, fields);
    }

    pub(crate) fn warn<const N: usize>(&self, logger: &str, message: &str, fields: Fields<N>) {
        self.add("warn", logger, message, fields);
    }

    fn add<const N: usize>(&self, level: &str, logger: &str, message: &str, fields: Fields<N>) {
        let fields = fields
            .into_iter()
            .map(|(name, value)| (name, cut(value)))
            .collect();
        let entry = Entry {
            at: UnixMillis::now(),
            level,
            logger,
            message,
            fields,
        };
        let Ok(json) = serde_json::to_string(&entry) else {
            return;
        };

        let mut ring = self.ring.borrow_mut();
        ring.bytes += json.len();
        ring.entries.push_back(json.into());
        while ring.entries.len() > MAX_ENTRIES || ring.bytes > MAX_BYTES {
            let Some(oldest) = ring.entries.pop_front() else {
                break;
            };
            ring.bytes -= oldest.len();
        }
    }

    /// All entries as one JSON array, oldest first.
    pub(crate) fn to_json(&self) -> String {
        let ring = self.ring.borrow();
        let mut json = String::with_capacity(ring.bytes + ring.entries.len() + 2);
        json.push('[');
        for (i, entry) in ring.entries.iter().enumerate() {
            if i > 0 {
                json.push(',');
            }
            json.push_str(entry);
        }
        json.push(']');
        json
    }
}

fn cut(mut value: String) -> String {
    if value.len() > MAX_VALUE {
        value.truncate(value.floor_char_boundary(MAX_VALUE));
        value.push('…');
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_and_forgets_the_oldest() {
        let logs = Logs::default();
        for i in 0..3_000 {
            logs.info(
                "test",
                "event",
                [("i", i.to_string()), ("long", "é".repeat(5_000))],
            );
        }
        let json: serde_json::Value = serde_json::from_str(&logs.to_json()).unwrap();
        let entries = json.as_array().unwrap();
        assert!(logs.to_json().len() <= MAX_BYTES + MAX_ENTRIES && entries.len() > 100);
        assert_eq!(entries.last().unwrap()["fields"]["i"], "2999");
    }

    #[test]
    fn no_entries_are_an_empty_list() {
        assert_eq!(Logs::default().to_json(), "[]");
    }
}
