//! The logs of sandboxes that have ended: a file each, for a day.
//!
//! Nobody waits for them and nothing depends on them. They are bounded in all: when there are too
//! many, the tenant that has most of them loses its oldest, so that nobody loses theirs to another.
//! The file's name says whose it is, and its time when it ended: a start reads none of them.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use fs_err as fs;
use parking_lot::Mutex;
use soulbox_durable as durable;
use soulbox_runtime::{Error, LogEntry, Result};
use soulbox_types::{SandboxId, TenantId, UnixMillis};

const AGE: Duration = Duration::from_hours(24);
const MOST: usize = 4096;
const MOST_BYTES: u64 = 64 << 20;
/// Command lines are in them.
const MODE: u32 = 0o600;
const SUFFIX: &str = ".json";

#[derive(Debug)]
pub(crate) struct EndedLogs {
    folder: PathBuf,
    shelves: Mutex<BTreeMap<TenantId, Shelf>>,
}

/// Of one tenant, oldest first.
#[derive(Debug, Default)]
struct Shelf {
    logs: VecDeque<Kept>,
    bytes: u64,
}

#[derive(Debug)]
struct Kept {
    id: SandboxId,
    at: UnixMillis,
    bytes: u64,
}

impl EndedLogs {
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        durable::make_folder(&folder, 0o700).map_err(failed)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, facts) = (entry.file_name(), entry.metadata().map_err(failed)?);
            let Some((tenant, id)) = name.to_str().and_then(parse) else {
                // What a crash left of one that was being written.
                remove(&entry.path());
                continue;
            };
            let at = facts.modified().map_err(failed)?;
            let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let at = UnixMillis(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
            let bytes = facts.len();
            found.push((tenant, Kept { id, at, bytes }));
        }
        found.sort_by_key(|(_, kept)| kept.at);
        let mut shelves: BTreeMap<TenantId, Shelf> = BTreeMap::new();
        for (tenant, kept) in found {
            shelves.entry(tenant).or_default().add(kept);
        }
        let logs = Self {
            folder,
            shelves: Mutex::new(shelves),
        };
        logs.drop_old(UnixMillis::now());
        Ok(logs)
    }

    /// Blocking.
    pub(crate) fn keep(&self, tenant: &TenantId, id: &SandboxId, entries: Vec<LogEntry>) {
        let entries = super::kept::bounded(entries);
        let written = serde_json::to_vec(&entries)
            .map_err(std::io::Error::other)
            .and_then(|text| {
                durable::write_soon(&self.file(tenant, id), MODE, &text)?;
                Ok(text.len() as u64)
            });
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!(sandbox_id = %id, %error, "the log of an ended sandbox is not kept");
                return;
            }
        };
        let mut shelves = self.shelves.lock();
        let shelf = shelves.entry(tenant.clone()).or_default();
        let (id, at) = (id.clone(), UnixMillis::now());
        shelf.add(Kept { id, at, bytes });
        while let Some((tenant, id)) = one_too_many(&mut shelves, MOST, MOST_BYTES) {
            remove(&self.file(&tenant, &id));
        }
    }

    /// Blocking. `None`: there is none (any more), or it cannot be read.
    pub(crate) fn read(&self, id: &SandboxId) -> Option<Vec<LogEntry>> {
        let tenant = {
            let shelves = self.shelves.lock();
            let has = |shelf: &Shelf| shelf.logs.iter().any(|kept| kept.id == *id);
            let shelf = shelves.iter().find(|(_, shelf)| has(shelf));
            shelf.map(|(tenant, _)| tenant.clone())?
        };
        let text = fs::read(self.file(&tenant, id)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// How many, and how many bytes.
    pub(crate) fn size(&self, tenant: &TenantId) -> (u64, u64) {
        let shelves = self.shelves.lock();
        let shelf = shelves.get(tenant);
        shelf.map_or((0, 0), |shelf| (shelf.logs.len() as u64, shelf.bytes))
    }

    /// Blocking. Those of a tenant, all of them.
    pub(crate) fn clear(&self, tenant: &TenantId) {
        let shelf = self.shelves.lock().remove(tenant);
        for kept in shelf.unwrap_or_default().logs {
            remove(&self.file(tenant, &kept.id));
        }
    }

    /// Blocking, but seldom has anything to do.
    pub(crate) fn drop_old(&self, now: UnixMillis) {
        let mut old = Vec::new();
        self.shelves.lock().retain(|tenant, shelf| {
            while shelf
                .logs
                .front()
                .is_some_and(|kept| kept.at.plus(AGE) <= now)
            {
                old.extend(shelf.take_oldest().map(|kept| (tenant.clone(), kept.id)));
            }
            !shelf.logs.is_empty()
        });
        for (tenant, id) in old {
            remove(&self.file(&tenant, &id));
        }
    }

    fn file(&self, tenant: &TenantId, id: &SandboxId) -> PathBuf {
        self.folder
            .join(format!("{}.{id}{SUFFIX}", tenant.as_str()))
    }
}

impl Shelf {
    fn add(&mut self, kept: Kept) {
        self.bytes += kept.bytes;
        self.logs.push_back(kept);
    }

    fn take_oldest(&mut self) -> Option<Kept> {
        let kept = self.logs.pop_front()?;
        self.bytes -= kept.bytes;
        Some(kept)
    }
}

/// The oldest of who has most, while there are too many.
fn one_too_many(
    shelves: &mut BTreeMap<TenantId, Shelf>,
    most: usize,
    most_bytes: u64,
) -> Option<(TenantId, SandboxId)> {
    let count: usize = shelves.values().map(|shelf| shelf.logs.len()).sum();
    let bytes: u64 = shelves.values().map(|shelf| shelf.bytes).sum();
    let largest = if bytes > most_bytes {
        shelves.iter_mut().max_by_key(|(_, shelf)| shelf.bytes)
    } else if count > most {
        shelves.iter_mut().max_by_key(|(_, shelf)| shelf.logs.len())
    } else {
        None
    };
    let (tenant, shelf) = largest?;
    let oldest = shelf.take_oldest()?;
    Some((tenant.clone(), oldest.id))
}

fn parse(name: &str) -> Option<(TenantId, SandboxId)> {
    let (tenant, id) = name.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    Some((tenant.parse().ok()?, id.parse().ok()?))
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, "the log of an ended sandbox stays");
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::io("could not use the folder of ended sandboxes' logs", source)
}

#[cfg(test)]
mod tests {
    use soulbox_runtime::LogLevel;

    use super::*;

    fn entry(message: &str) -> LogEntry {
        LogEntry {
            at: UnixMillis(1),
            level: LogLevel::Info,
            logger: "node".to_owned(),
            message: message.to_owned(),
            fields: BTreeMap::new(),
        }
    }

    /// By the last digit of its id.
    fn tenant(digit: &str) -> TenantId {
        format!("01a1ed88-b756-729c-a743-a03232e1e4c{digit}")
            .parse()
            .unwrap()
    }

    fn id(number: usize) -> SandboxId {
        format!("i{number}").parse().unwrap()
    }

    #[test]
    fn a_log_is_there_after_a_restart_and_only_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs");
        let logs = EndedLogs::open(path.clone()).unwrap();
        logs.keep(&tenant("a"), &id(1), vec![entry("ended")]);
        fs_err::write(path.join("half-written"), "x").unwrap();
        let again = EndedLogs::open(path.clone()).unwrap();
        assert_eq!(again.read(&id(1)).unwrap()[0].message, "ended");
        assert_eq!(again.size(&tenant("a")).0, 1);
        assert_eq!(again.size(&tenant("b")), (0, 0));
        again.drop_old(UnixMillis::now().plus(AGE));
        assert!(again.read(&id(1)).is_none());
        assert_eq!(fs_err::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn who_has_most_loses_the_oldest() {
        let mut shelves: BTreeMap<TenantId, Shelf> = BTreeMap::new();
        let mut add = |name: &str, number: usize, bytes: u64| {
            let (id, at) = (id(number), UnixMillis(number as u64));
            let shelf = shelves.entry(tenant(name)).or_default();
            shelf.add(Kept { id, at, bytes });
        };
        add("f", 0, 1);
        for number in 1..5 {
            add("e", number, 1);
        }
        let first = one_too_many(&mut shelves, 3, 100);
        assert_eq!(first, Some((tenant("e"), id(1))));
        let second = one_too_many(&mut shelves, 3, 100);
        assert_eq!(second, Some((tenant("e"), id(2))));
        assert_eq!(one_too_many(&mut shelves, 3, 100), None);
        shelves.get_mut(&tenant("f")).unwrap().add(Kept {
            id: id(9),
            at: UnixMillis(9),
            bytes: 1000,
        });
        let largest = one_too_many(&mut shelves, 100, 100);
        assert_eq!(largest, Some((tenant("f"), id(0))));
    }

    #[test]
    fn clearing_leaves_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let logs = EndedLogs::open(folder.path().join("logs")).unwrap();
        logs.keep(&tenant("a"), &id(1), vec![entry("x")]);
        logs.keep(&tenant("b"), &id(2), vec![entry("y")]);
        logs.clear(&tenant("a"));
        assert!(logs.read(&id(1)).is_none() && logs.read(&id(2)).is_some());
    }
}
