use anyhow::Result;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use soulbox_client::Error;

use crate::{
    args::StatsArgs,
    context::Server,
    output::{self, Columns, cell, units},
    report::warning,
};

const AT_ONCE: usize = 8;

/// One sandbox's use, under the names that E2B's metrics have.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    #[serde(rename = "sandboxID")]
    sandbox: String,
    cpu_count: u32,
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    disk_used: u64,
    disk_total: u64,
    /// Absent until the node has a sample, as the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    mem_peak: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oom_kills: Option<u64>,
}

pub(super) async fn run(args: &StatsArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let all = match &args.sandbox {
        Some(name) => vec![stats(&server, server.find(name).await?.listed.id).await?],
        None => every(&server).await?,
    };
    if args.json {
        output::json(&all)?;
    } else {
        table(&all).print()?;
    }
    Ok(0)
}

/// As a table, those that use most first.
pub(super) async fn of_all(server: &Server) -> Result<String> {
    let mut all = every(server).await?;
    all.sort_by(|one, other| other.cpu_used_pct.total_cmp(&one.cpu_used_pct));
    Ok(table(&all).render())
}

async fn every(server: &Server) -> Result<Vec<Stats>> {
    let listed = server.client.list().await;
    let listed = listed.map_err(|error| server.explain(error))?;
    let running = listed.into_iter().filter(|one| one.state == "running");
    let ids: Vec<String> = running.map(|one| one.id).collect();
    let mut all = Vec::new();
    let mut asked = stream::iter(ids.into_iter().map(|id| stats(server, id))).buffered(AT_ONCE);
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(stats) => all.push(stats),
            // It ended between the list and the question.
            Err(error) if error.is_not_found() => {}
            Err(error) => warning(&error.to_string()),
        }
    }
    Ok(all)
}

/// The node's newest sample, or envd's own count while there is none yet.
async fn stats(server: &Server, id: String) -> Result<Stats, Error> {
    if let Some(metric) = server.client.metrics(&id).await?.pop() {
        return Ok(Stats {
            sandbox: id,
            cpu_count: metric.cpu_count,
            cpu_used_pct: metric.cpu_used_pct,
            mem_used: metric.mem_used,
            mem_total: metric.mem_total,
            disk_used: metric.disk_used,
            disk_total: metric.disk_total,
            mem_peak: metric.mem_peak,
            oom_kills: Some(metric.oom_kills),
        });
    }
    let detail = server.client.sandbox(&id).await?;
    let usage = server
        .client
        .envd(&id, detail.envd_access_token)
        .usage()
        .await?;
    Ok(Stats {
        sandbox: id,
        cpu_count: usage.cpu_count,
        cpu_used_pct: usage.cpu_used_pct,
        mem_used: usage.mem_used,
        mem_total: usage.mem_total,
        disk_used: usage.disk_used,
        disk_total: usage.disk_total,
        mem_peak: None,
        oom_kills: None,
    })
}

fn table(all: &[Stats]) -> Columns {
    let headings = [
        "SANDBOX", "CPU", "OF", "MEMORY", "OF", "PEAK", "OOM", "DISK", "OF",
    ];
    let mut columns = Columns::new(&headings).right_aligned(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for stats in all {
        columns.row(vec![
            cell(&stats.sandbox),
            cell(format!("{:.1} %", stats.cpu_used_pct)),
            cell(stats.cpu_count.to_string()),
            cell(units::bytes(stats.mem_used)),
            cell(units::bytes(stats.mem_total)),
            cell(known(stats.mem_peak.map(units::bytes))),
            cell(known(stats.oom_kills.map(|count| count.to_string()))),
            cell(units::bytes(stats.disk_used)),
            cell(units::bytes(stats.disk_total)),
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_and_limit_stand_side_by_side() {
        let stats = Stats {
            sandbox: "i1".to_owned(),
            cpu_count: 2,
            cpu_used_pct: 12.34,
            mem_used: 10 << 20,
            mem_total: 512 << 20,
            disk_used: 0,
            disk_total: 1 << 30,
            mem_peak: Some(20 << 20),
            oom_kills: None,
        };
        let shown = table(&[stats]).render();
        let words: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "i1 12.3 % 2 10.0 MiB 512.0 MiB 20.0 MiB - 0 B 1.0 GiB"
        );
    }
}
