//! What happened to sandboxes.

use std::{collections::HashSet, time::Duration};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use soulbox_client::{EVENTS_PER_PAGE, model::SandboxEvent};

use crate::{
    args::EventsArgs,
    context::Server,
    interrupts::unless_interrupted,
    output::{self, units},
};

const POLL: Duration = Duration::from_secs(1);
/// The server keeps no more than 200,000.
const MAX_PAGES: u32 = 2000;

pub(super) async fn run(args: &EventsArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let sandbox = match &args.sandbox {
        Some(name) => Some(server.find_ended_too(name).await?),
        None => None,
    };
    let since = args
        .since
        .map(|seconds| Timestamp::now().as_millisecond() - i64::from(seconds) * 1000);
    let mut seen = Seen::default();
    for event in history(&server, sandbox.as_deref(), since).await? {
        if seen.is_new(&event) {
            print(&event, args.json)?;
        }
    }
    if !args.follow {
        return Ok(0);
    }
    let following = async {
        loop {
            tokio::time::sleep(POLL).await;
            for event in news(&server, sandbox.as_deref(), &seen).await? {
                if seen.is_new(&event) {
                    print(&event, args.json)?;
                }
            }
        }
    };
    unless_interrupted(following, "only the watching ends; the sandboxes go on").await?
}

/// Oldest first: the newest page, or all since then.
async fn history(
    server: &Server,
    sandbox: Option<&str>,
    since: Option<i64>,
) -> Result<Vec<SandboxEvent>> {
    let is_old = |event: &SandboxEvent| {
        since.is_some_and(|since| units::unix_millis(&event.timestamp) < Some(since))
    };
    let mut events = Vec::new();
    for page in 0..MAX_PAGES {
        let found = server.client.events(sandbox, page * EVENTS_PER_PAGE).await;
        let found = found.map_err(|error| server.explain(error))?;
        let is_last = since.is_none()
            || found.len() < EVENTS_PER_PAGE as usize
            || found.last().is_some_and(is_old);
        events.extend(found);
        if is_last {
            break;
        }
    }
    events.retain(|event| !is_old(event));
    events.reverse();
    Ok(events)
}

/// Oldest first: pages until one has something that was shown.
async fn news(server: &Server, sandbox: Option<&str>, seen: &Seen) -> Result<Vec<SandboxEvent>> {
    let mut events = Vec::new();
    for page in 0..MAX_PAGES {
        let found = server
            .client
            .events(sandbox, page * EVENTS_PER_PAGE)
            .await?;
        let is_last = found.len() < EVENTS_PER_PAGE as usize
            || found.iter().any(|event| seen.0.contains(&event.id));
        events.extend(found);
        if is_last {
            break;
        }
    }
    events.reverse();
    Ok(events)
}

/// By their ids: several may have the same time.
#[derive(Debug, Default)]
struct Seen(HashSet<String>);

impl Seen {
    fn is_new(&mut self, event: &SandboxEvent) -> bool {
        self.0.insert(event.id.clone())
    }
}

fn print(event: &SandboxEvent, json: bool) -> Result<()> {
    if json {
        output::json_line(event)
    } else {
        output::text(&line(event))
    }
}

fn line(event: &SandboxEvent) -> String {
    let mut words = vec![
        event.timestamp.clone(),
        event.sandbox.clone(),
        event.label.clone(),
    ];
    for name in ["reason", "killed", "memory_mb", "set_timeout"] {
        match &event.data[name] {
            Value::String(text) => words.push(format!("{name}={text}")),
            Value::Number(number) => words.push(format!("{name}={number}")),
            _ => {}
        }
    }
    output::printable(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_its_reason() {
        let event: SandboxEvent = serde_json::from_value(serde_json::json!({
            "id": "e1", "sandboxId": "i1", "eventLabel": "killed", "version": "v1",
            "eventData": {"reason": "expired", "sandbox_metadata": {}},
            "timestamp": "2026-01-01T00:00:00.000Z",
        }))
        .unwrap();
        assert_eq!(
            line(&event),
            "2026-01-01T00:00:00.000Z i1 killed reason=expired"
        );
        // What we do not show is passed on.
        assert_eq!(serde_json::to_value(&event).unwrap()["version"], "v1");
        let mut seen = Seen::default();
        assert!(seen.is_new(&event) && !seen.is_new(&event));
    }
}
