//! What a build tells: one file per build, append only, a line per entry, so that an entry keeps
//! its index for good.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use soulbox_build::BuildLog;
use soulbox_runtime::LogLevel;
use soulbox_types::{Chain, UnixMillis};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

/// Of one build; more is cut off.
const MAX_BYTES: u64 = 64 << 20;
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Lines that wait to be written. A build that writes faster than the disk loses some.
const WAITING_LINES: usize = 1024;
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Shorter ones would hide ordinary words.
const SHORTEST_HIDDEN: usize = 6;

/// One line of a build's log. The message may hold what a program inside printed, colours and all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLogEntry {
    pub at: UnixMillis,
    pub level: LogLevel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub message: String,
}

#[derive(Debug)]
enum Note {
    Line(BuildLogEntry),
    Close,
}

/// The end at which a build writes. A thread of its own touches the file.
#[derive(Debug)]
pub(crate) struct LogWriter {
    notes: mpsc::Sender<Note>,
    /// Never to be written.
    hidden: Vec<String>,
    lost: AtomicU64,
}

/// To be awaited when the build has ended.
#[derive(Debug)]
pub(crate) struct LogEnd {
    notes: mpsc::Sender<Note>,
    thread: JoinHandle<()>,
}

impl LogWriter {
    /// Goes on with what an earlier run wrote.
    pub(crate) fn open(path: PathBuf, mut hidden: Vec<String>) -> (Arc<Self>, LogEnd) {
        hidden.retain(|text| text.len() >= SHORTEST_HIDDEN);
        let (notes, inbox) = mpsc::channel(WAITING_LINES);
        let thread = tokio::task::spawn_blocking(move || {
            if let Err(error) = write(&path, inbox) {
                tracing::error!(path = %path.display(), error = %Chain(&error), "could not write a build's log");
            }
        });
        let writer = Arc::new(Self {
            notes: notes.clone(),
            hidden,
            lost: AtomicU64::new(0),
        });
        (writer, LogEnd { notes, thread })
    }

    /// Without what must not be seen.
    pub(crate) fn clean(&self, message: &str) -> String {
        let hide = |text: String, hidden: &String| text.replace(hidden.as_str(), "***");
        let mut text = self.hidden.iter().fold(message.to_owned(), hide);
        if text.len() > MAX_MESSAGE_BYTES {
            text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
            text.push('…');
        }
        text
    }
}

impl BuildLog for LogWriter {
    fn line(&self, level: LogLevel, step: Option<&str>, message: &str) {
        let entry = |level, message| {
            Note::Line(BuildLogEntry {
                at: UnixMillis::now(),
                level,
                step: step.map(str::to_owned),
                message,
            })
        };
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            let message = format!("{lost} lines came faster than they could be written");
            if self.notes.try_send(entry(LogLevel::Warn, message)).is_ok() {
                self.lost.fetch_sub(lost, Ordering::Relaxed);
            }
        }
        let sent = self.notes.try_send(entry(level, self.clean(message)));
        if matches!(sent, Err(mpsc::error::TrySendError::Full(_))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LogEnd {
    /// Everything written so far is in the file when this returns; what comes later is dropped.
    pub(crate) async fn close(self) {
        let closed = async {
            self.notes.send(Note::Close).await.ok();
            self.thread.await.ok();
        };
        if timeout(CLOSE_LIMIT, closed).await.is_err() {
            tracing::warn!("a build's log is behind");
        }
    }
}

fn write(path: &Path, mut inbox: mpsc::Receiver<Note>) -> io::Result<()> {
    let (file, mut size) = open(path)?;
    let mut file = BufWriter::new(file);
    let mut full = size >= MAX_BYTES;
    while let Some(Note::Line(entry)) = inbox.blocking_recv() {
        if full {
            continue;
        }
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        size += line.len() as u64;
        full = size >= MAX_BYTES;
        if full {
            line = serde_json::to_vec(&BuildLogEntry {
                level: LogLevel::Warn,
                message: format!("log truncated: it has reached {} MiB", MAX_BYTES >> 20),
                ..entry
            })?;
            line.push(b'\n');
        }
        file.write_all(&line)?;
        if inbox.is_empty() {
            file.flush()?;
        }
    }
    file.flush()
}

/// A line that a crash cut off is removed: nobody has seen it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)?;
    let mut whole = file.metadata()?.len();
    let mut last = [0];
    while whole > 0 {
        file.seek(SeekFrom::Start(whole - 1))?;
        file.read_exact(&mut last)?;
        if last == *b"\n" {
            break;
        }
        whole -= 1;
    }
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    Ok((file, whole))
}

/// Which part of a log to read.
#[derive(Debug, Clone, Copy)]
pub enum BuildLogPage {
    /// From the entry with this index on, counted among those of the level.
    FromIndex { index: usize, limit: usize },
    /// Oldest first, from a time on.
    Forward {
        from: Option<UnixMillis>,
        limit: usize,
    },
    /// Newest first, before a time.
    Backward {
        before: Option<UnixMillis>,
        limit: usize,
    },
}

/// Blocking. A build that never wrote anything has an empty log.
pub(crate) fn read(
    path: &Path,
    page: BuildLogPage,
    level: LogLevel,
) -> io::Result<Vec<BuildLogEntry>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut lines = Lines {
        file: BufReader::new(file),
        line: Vec::new(),
    };
    if let (LogLevel::Debug, BuildLogPage::FromIndex { index, limit }) = (level, page) {
        // The way that clients ask, every moment of a build.
        for _ in 0..index {
            if !lines.skip()? {
                return Ok(Vec::new());
            }
        }
        return lines.take(limit, |_| true);
    }
    let described = |entry: &BuildLogEntry| entry.level >= level;
    match page {
        BuildLogPage::FromIndex { mut index, limit } => lines.take(limit, |entry| {
            let here = described(entry) && index == 0;
            index -= usize::from(described(entry) && index > 0);
            here
        }),
        BuildLogPage::Forward { from, limit } => lines.take(limit, |entry| {
            described(entry) && from.is_none_or(|from| entry.at >= from)
        }),
        BuildLogPage::Backward { before, limit } => {
            let mut last = VecDeque::new();
            while let Some(entry) = lines.next()? {
                if described(&entry) && before.is_none_or(|before| entry.at < before) {
                    last.push_front(entry);
                    last.truncate(limit);
                }
            }
            Ok(last.into())
        }
    }
}

struct Lines {
    file: BufReader<File>,
    line: Vec<u8>,
}

impl Lines {
    /// `false` at the end, which may be in the middle of a line that is being written.
    fn skip(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.file.read_until(b'\n', &mut self.line)?;
        Ok(self.line.ends_with(b"\n"))
    }

    fn next(&mut self) -> io::Result<Option<BuildLogEntry>> {
        if !self.skip()? {
            return Ok(None);
        }
        // An index must not shift because of one damaged line.
        let damaged = || BuildLogEntry {
            at: UnixMillis(0),
            level: LogLevel::Warn,
            step: None,
            message: "this line of the log is damaged".to_owned(),
        };
        Ok(Some(
            serde_json::from_slice(&self.line).unwrap_or_else(|_| damaged()),
        ))
    }

    fn take(
        mut self,
        limit: usize,
        mut wanted: impl FnMut(&BuildLogEntry) -> bool,
    ) -> io::Result<Vec<BuildLogEntry>> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(entry) = self.next()?
        {
            if wanted(&entry) {
                taken.push(entry);
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &Path, page: BuildLogPage, level: LogLevel) -> Vec<String> {
        let entries = read(path, page, level).unwrap();
        entries.into_iter().map(|entry| entry.message).collect()
    }

    fn from(index: usize) -> BuildLogPage {
        BuildLogPage::FromIndex { index, limit: 2 }
    }

    #[tokio::test]
    async fn an_entry_keeps_its_index_over_restarts_and_cut_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.jsonl");
        assert!(texts(&path, from(0), LogLevel::Debug).is_empty());
        let (writer, end) = LogWriter::open(path.clone(), vec!["hunter2".into(), "a".into()]);
        writer.line(LogLevel::Info, Some("base"), "a FROM x");
        writer.line(LogLevel::Debug, None, "password hunter2");
        end.close().await;
        writer.line(LogLevel::Info, None, "too late");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"at\":1,\"lev").unwrap();
        assert_eq!(
            texts(&path, from(0), LogLevel::Debug),
            ["a FROM x", "password ***"]
        );
        let (writer, end) = LogWriter::open(path.clone(), Vec::new());
        writer.line(LogLevel::Error, Some("1"), "again");
        end.close().await;
        assert_eq!(
            texts(&path, from(1), LogLevel::Debug),
            ["password ***", "again"]
        );
        assert!(texts(&path, from(3), LogLevel::Debug).is_empty());
        assert_eq!(texts(&path, from(1), LogLevel::Info), ["again"]);
        let step = read(&path, from(0), LogLevel::Debug).unwrap()[0]
            .step
            .clone();
        assert_eq!(step.as_deref(), Some("base"));
    }

    #[test]
    fn pages_by_time_go_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.jsonl");
        let lines =
            (1..=4).map(|at| format!("{{\"at\":{at},\"level\":\"info\",\"message\":\"{at}\"}}\n"));
        std::fs::write(&path, lines.collect::<Vec<_>>().concat()).unwrap();
        let forward = BuildLogPage::Forward {
            from: Some(UnixMillis(2)),
            limit: 2,
        };
        assert_eq!(texts(&path, forward, LogLevel::Debug), ["2", "3"]);
        let backward = |before| BuildLogPage::Backward { before, limit: 2 };
        assert_eq!(texts(&path, backward(None), LogLevel::Debug), ["4", "3"]);
        let older = backward(Some(UnixMillis(3)));
        assert_eq!(texts(&path, older, LogLevel::Info), ["2", "1"]);
        assert!(texts(&path, backward(None), LogLevel::Warn).is_empty());
    }

    #[tokio::test]
    async fn a_log_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.jsonl");
        let line = format!(
            "{{\"at\":1,\"level\":\"info\",\"message\":\"{}\"}}\n",
            "x".repeat(1 << 20)
        );
        std::fs::write(&path, line.repeat(63)).unwrap();
        let (writer, end) = LogWriter::open(path.clone(), Vec::new());
        let long = "y".repeat(MAX_MESSAGE_BYTES + 1);
        for _ in 0..200 {
            writer.line(LogLevel::Info, None, &long);
        }
        end.close().await;
        let page = BuildLogPage::Backward {
            before: None,
            limit: 1,
        };
        let last = read(&path, page, LogLevel::Debug).unwrap().remove(0);
        assert!(last.message.starts_with("log truncated"), "{last:?}");
        assert!(std::fs::metadata(&path).unwrap().len() < MAX_BYTES + 1000);
    }
}
