use std::{fmt::Write, time::Duration};

use anyhow::Result;
use soulbox_client::model::LogEntry;

use crate::{
    args::LogsArgs,
    context::Server,
    interrupts::unless_interrupted,
    output::{self, units},
};

const POLL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &LogsArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find_ended_too(&args.sandbox).await?;
    let reading = read(&server, &id, args);
    if !args.follow {
        return reading.await;
    }
    let leave = format!("only the watching ends; `soulbox logs -f {id}` goes on with it");
    unless_interrupted(reading, &leave).await?
}

async fn read(server: &Server, id: &str, args: &LogsArgs) -> Result<u8> {
    let mut filter = LogFilter::default();
    loop {
        // Looked at first: what was logged until then is in the log that is read next.
        let has_ended = match server.client.sandbox(id).await {
            Ok(_) => false,
            Err(error) if error.is_not_found() => true,
            Err(error) => return Err(server.explain(error)),
        };
        let entries = match server.client.logs(id, filter.newest).await {
            Ok(entries) => entries,
            // It ended more than a day ago, or between two looks on a server that keeps no logs.
            Err(error) if error.is_not_found() && filter.newest.is_some() => return Ok(0),
            Err(error) => return Err(server.explain(error)),
        };
        for entry in filter.of(entries) {
            print(&entry, args.json)?;
        }
        if has_ended || !args.follow {
            return Ok(0);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn print(entry: &LogEntry, json: bool) -> Result<()> {
    if json {
        output::json_line(entry)
    } else {
        output::text(&line(entry))
    }
}

fn line(entry: &LogEntry) -> String {
    let mut line = format!(
        "{} {:<5} {}",
        entry.timestamp,
        entry.level.to_uppercase(),
        entry.message
    );
    for (name, value) in &entry.fields {
        // Writing to a String cannot fail.
        write!(line, " {name}={value}").ok();
    }
    output::printable(&line)
}

/// Drops entries that were shown: asking again from the newest time returns the entries of that
/// millisecond once more.
#[derive(Debug, Default)]
struct LogFilter {
    newest: Option<i64>,
    /// How many with exactly that time have been shown.
    shown: usize,
}

impl LogFilter {
    fn of(&mut self, entries: Vec<LogEntry>) -> Vec<LogEntry> {
        let mut skip = self.shown;
        let mut fresh = Vec::new();
        for entry in entries {
            let at = units::unix_millis(&entry.timestamp);
            if at.is_some() && at == self.newest && skip > 0 {
                skip -= 1;
                continue;
            }
            if at > self.newest {
                self.newest = at;
                self.shown = 0;
            }
            if at == self.newest {
                self.shown += 1;
            }
            fresh.push(entry);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: u32, message: &str) -> LogEntry {
        LogEntry {
            timestamp: format!("2026-01-01T00:00:{second:02}.5Z"),
            level: "info".to_owned(),
            message: message.to_owned(),
            fields: [("pid".to_owned(), "1".to_owned())].into(),
        }
    }

    #[test]
    fn an_entry_is_shown_once_however_often_it_is_fetched() {
        let mut filter = LogFilter::default();
        let mut shown = Vec::new();
        for page in [
            vec![entry(1, "a"), entry(2, "b")],
            vec![entry(2, "b")],
            vec![entry(2, "b"), entry(2, "c"), entry(3, "d")],
            vec![entry(3, "d")],
        ] {
            shown.extend(filter.of(page).into_iter().map(|entry| entry.message));
        }
        assert_eq!(shown, ["a", "b", "c", "d"]);
    }

    #[test]
    fn bytes_from_inside_cannot_steer_the_terminal() {
        assert_eq!(
            line(&entry(1, "\x1b[2J")),
            "2026-01-01T00:00:01.5Z INFO  \\u{1b}[2J pid=1"
        );
    }
}
