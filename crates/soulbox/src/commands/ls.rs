use anyhow::Result;
use jiff::Timestamp;
use soulbox_client::model::ListedSandbox;

use crate::{
    args::ListArgs,
    context::Server,
    output::{self, Columns, cell, state_cell, units},
};

pub(super) async fn run(args: &ListArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    if args.broken {
        return broken(&server, args).await;
    }
    let sandboxes = server
        .client
        .list()
        .await
        .map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&sandboxes)?;
    } else if args.quiet {
        for sandbox in &sandboxes {
            output::text(&output::printable(&sandbox.id))?;
        }
    } else {
        table(&sandboxes, Timestamp::now()).print()?;
        print_broken_count(&server).await;
    }
    Ok(0)
}

/// They are in no list but their own, and their owner may not know of them. A server that cannot
/// list them has none, or says so when it is asked.
async fn print_broken_count(server: &Server) {
    let broken = server.client.broken().await.unwrap_or_default().len();
    if broken > 0 {
        eprintln!("{broken} more cannot be used: `soulbox ls --broken` says why");
    }
}

async fn broken(server: &Server, args: &ListArgs) -> Result<u8> {
    let listed = server.client.broken().await;
    let listed = listed.map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&listed)?;
    } else if args.quiet {
        for sandbox in &listed {
            output::text(&output::printable(&sandbox.id))?;
        }
    } else {
        let names = ["SANDBOX", "FOUND", "DISK", "CAN BE", "REASON"];
        let mut columns = Columns::new(&names);
        for sandbox in &listed {
            columns.row(vec![
                cell(&sandbox.id),
                cell(units::ago(&sandbox.found_at, Timestamp::now())),
                cell(units::bytes(sandbox.disk_bytes)),
                cell(match sandbox.remedy.as_str() {
                    "repair" => "recovered",
                    "retry" => "tried again",
                    _ => "exported",
                }),
                cell(&sandbox.reason),
            ]);
        }
        columns.print()?;
    }
    Ok(0)
}

fn table(sandboxes: &[ListedSandbox], now: Timestamp) -> Columns {
    let names = [
        "SANDBOX", "TEMPLATE", "STATE", "STARTED", "ENDS", "CPU", "MEMORY", "METADATA",
    ];
    let mut columns = Columns::new(&names);
    for sandbox in sandboxes {
        let metadata: Vec<String> = sandbox
            .metadata
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        columns.row(vec![
            cell(&sandbox.id),
            cell(sandbox.alias.as_ref().unwrap_or(&sandbox.template)),
            state_cell(&sandbox.state),
            cell(units::ago(&sandbox.started_at, now)),
            cell(end(sandbox, now)),
            cell(sandbox.cpu_count.to_string()),
            cell(units::bytes(u64::from(sandbox.memory_mb) << 20)),
            cell(metadata.join(" ")),
        ]);
    }
    columns
}

/// A paused sandbox has no end: its clock stands still.
fn end(sandbox: &ListedSandbox, now: Timestamp) -> String {
    match sandbox.state.as_str() {
        "paused" => "-".to_owned(),
        _ => units::ahead(&sandbox.end_at, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(state: &str) -> ListedSandbox {
        serde_json::from_value(serde_json::json!({
            "sandboxID": "iabc", "templateID": "xyz", "alias": "base", "state": state,
            "startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T00:05:00Z", "cpuCount": 2,
            "memoryMB": 512, "diskSizeMB": 1, "envdVersion": "0", "metadata": {"job": "7\u{1b}"},
        }))
        .unwrap()
    }

    #[test]
    fn a_sandbox_at_rest_has_no_end() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(end(&sandbox("paused"), now), "-");
        assert_eq!(end(&sandbox("running"), now), "now");
    }

    #[test]
    fn a_row_reads_like_a_sentence() {
        let sandbox = sandbox("running");
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let shown = table(&[sandbox], now).render();
        let row = shown.lines().nth(1).unwrap();
        let words: Vec<&str> = row
            .split("  ")
            .filter(|word| !word.is_empty())
            .map(str::trim)
            .collect();
        assert_eq!(
            words,
            [
                "iabc",
                "base",
                "running",
                "60 s ago",
                "in 4 min",
                "2",
                "512.0 MiB",
                "job=7\\u{1b}"
            ]
        );
    }
}
