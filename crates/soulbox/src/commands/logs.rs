use std::{fmt::Write, time::Duration};

use anyhow::Result;
use soulbox_client::model::LogEntry;

use crate::{
    args::LogsArgs,
    context::Server,
    output::{self, units},
};

const POLL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &LogsArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    let mut filter = LogFilter::default();
    let mut entries = server.client.logs(&id, None).await?;
    loop {
        for entry in filter.of(entries) {
            print(&entry, args.json)?;
        }
        if !args.follow {
            return Ok(0);
        }
        tokio::time::sleep(POLL).await;
        entries = match server.client.logs(&id, filter.newest).await {
            Ok(entries) => entries,
            // That it has ended is the end of the log, not a failure.
            Err(error) if error.is_not_found() => return Ok(0),
            Err(error) => return Err(error.into()),
        };
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
