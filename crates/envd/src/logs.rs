//! A short memory of what happened, which the node collects with `GET /soulbox/logs`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
};

use serde::Serialize;
use soulbox_types::UnixMillis;

const MAX_ENTRIES: usize = 1_000;
const MAX_BYTES: usize = 256 << 10;
/// Longer values are cut: a command line may be megabytes.
const MAX_VALUE: usize = 512;

/// The shape is the node's `LogEntry`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    at: UnixMillis,
    level: &'static str,
    logger: &'static str,
    message: String,
    fields: BTreeMap<&'static str, String>,
    #[serde(skip)]
    size: usize,
}

#[derive(Default)]
pub(crate) struct Logs {
    ring: RefCell<(VecDeque<Entry>, usize)>,
}

impl Logs {
    pub(crate) fn info<const N: usize>(
        &self,
        logger: &'static str,
        message: &str,
        fields: [(&'static str, String); N],
    ) {
        self.add("info", logger, message, fields);
    }

    pub(crate) fn warn<const N: usize>(
        &self,
        logger: &'static str,
        message: &str,
        fields: [(&'static str, String); N],
    ) {
        self.add("warn", logger, message, fields);
    }

    fn add<const N: usize>(
        &self,
        level: &'static str,
        logger: &'static str,
        message: &str,
        fields: [(&'static str, String); N],
    ) {
        let fields: BTreeMap<_, _> = fields.into_iter().map(|(k, v)| (k, cut(v))).collect();
        let size = 64 + message.len() + fields.values().map(|v| v.len() + 32).sum::<usize>();
        let entry = Entry {
            at: UnixMillis::now(),
            level,
            logger,
            message: message.into(),
            fields,
            size,
        };

        let (entries, bytes) = &mut *self.ring.borrow_mut();
        entries.push_back(entry);
        *bytes += size;
        while entries.len() > MAX_ENTRIES || *bytes > MAX_BYTES {
            let Some(oldest) = entries.pop_front() else {
                break;
            };
            *bytes -= oldest.size;
        }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.ring.borrow().0).unwrap_or_else(|_| b"[]".to_vec())
    }
}

fn cut(mut value: String) -> String {
    if value.len() > MAX_VALUE {
        value.truncate(value.floor_char_boundary(MAX_VALUE));
        value.push('…');
        value.shrink_to_fit();
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
        let (entries, bytes) = &*logs.ring.borrow();
        assert!(entries.len() <= MAX_ENTRIES && *bytes <= MAX_BYTES);
        assert_eq!(entries.back().unwrap().fields["i"], "2999");
    }
}
