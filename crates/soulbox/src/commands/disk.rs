//! What takes room, and freeing it.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Result;
use serde_json::json;
use soulbox_client::{Client, Error, model::DiskItem};

use crate::{
    args::{DiskArgs, PruneArgs},
    context::Server,
    interrupts::unless_interrupted,
    output::{self, Columns, cell, units},
    report::{self, advice, note},
};

pub(super) async fn df(args: &DiskArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let used = server.client.disk_use().await;
    let used = used.map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&used)?;
        return Ok(0);
    }
    table(&used.items).print()?;
    let freed: u64 = used.items.iter().map(|item| item.reclaimable).sum();
    if freed > 0 {
        note(&format!("`soulbox prune` frees {}", units::bytes(freed)));
    }
    Ok(0)
}

fn table(items: &[DiskItem]) -> Columns {
    let names = ["WHAT", "COUNT", "SIZE", "RECLAIMABLE"];
    let mut columns = Columns::new(&names).right_aligned(&[1, 2, 3]);
    for item in items {
        columns.row(vec![
            cell(called(&item.kind)),
            cell(item.count.to_string()),
            cell(units::bytes(item.bytes)),
            cell(units::bytes(item.reclaimable)),
        ]);
    }
    columns
}

fn called(kind: &str) -> &str {
    match kind {
        "running" => "running sandboxes",
        "paused" => "paused sandboxes",
        "broken" => "broken sandboxes",
        "ended_logs" => "logs of ended sandboxes",
        "build_cache" => "build cache, of all",
        other => other,
    }
}

/// What cannot be made again and goes only when it is named.
#[derive(Debug, Default)]
struct Named {
    paused: Vec<String>,
    snapshots: Vec<String>,
    volumes: Vec<(String, String)>,
}

impl Named {
    async fn list(server: &Server, args: &PruneArgs) -> Result<Self> {
        let explain = |error: Error| server.explain(error);
        let client = &server.client;
        let mut named = Self::default();
        if args.paused {
            let listed = client.list().await.map_err(explain)?.into_iter();
            let paused = listed.filter(|one| one.state == "paused");
            named.paused = paused.map(|one| one.id).collect();
        }
        if args.snapshots {
            let listed = client.snapshots(None).await.map_err(explain)?.into_iter();
            let ids = listed.map(|one| one.id.split(':').next().unwrap_or_default().to_owned());
            named.snapshots = ids.collect();
            named.snapshots.sort();
            named.snapshots.dedup();
        }
        if args.volumes {
            let listed = client.volumes().await.map_err(explain)?.into_iter();
            named.volumes = listed.map(|one| (one.id, one.name)).collect();
        }
        Ok(named)
    }

    /// As sentences for whoever is asked.
    fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        if !self.paused.is_empty() {
            let ids = self.paused.join(" ");
            told.push(format!("paused sandboxes, with everything in them: {ids}"));
        }
        if !self.snapshots.is_empty() {
            told.push(format!("snapshots: {}", self.snapshots.join(" ")));
        }
        if !self.volumes.is_empty() {
            let names: Vec<&str> = self.volumes.iter().map(|(_, name)| name.as_str()).collect();
            told.push(format!(
                "volumes that no sandbox has, of: {}",
                names.join(" ")
            ));
        }
        told
    }

    /// Sandboxes first: volumes and snapshots may be theirs. Returns what is gone.
    async fn remove(&self, client: &Client) -> (Vec<String>, bool) {
        let (mut gone, mut failed) = (Vec::new(), false);
        let mut done = |name: String, removed: soulbox_client::Result<bool>| match removed {
            Ok(true) => gone.push(name),
            Ok(false) => {}
            Err(error) if error.is_conflict() => note(&format!("{name} is in use and stays")),
            Err(error) => {
                report::print(&anyhow::Error::from(error).context(name));
                failed = true;
            }
        };
        for id in &self.paused {
            done(format!("sandbox {id}"), client.kill(id).await);
        }
        for id in &self.snapshots {
            done(format!("snapshot {id}"), client.delete_template(id).await);
        }
        for (id, name) in &self.volumes {
            done(format!("volume {name}"), client.delete_volume(id).await);
        }
        (gone, failed)
    }
}

pub(super) async fn prune(args: &PruneArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let named = Named::list(&server, args).await?;
    if args.dry_run {
        let would = server.client.prune(true).await;
        let would = would.map_err(|error| server.explain(error))?;
        if args.json {
            output::json(&json!({ "freed": would.freed, "named": named.told() }))?;
        } else {
            print_freed("would be freed", &would.freed)?;
            for line in named.told() {
                output::text(&output::printable(&format!("would go: {line}")))?;
            }
        }
        return Ok(0);
    }
    if !args.yes {
        ask(&server, &named).await?;
    }
    let leave = "the server goes on with what it has begun; `soulbox df` shows what is left";
    let work = async {
        let (gone, failed) = named.remove(&server.client).await;
        let pruned = server.client.prune(false).await;
        (gone, failed, pruned)
    };
    let (gone, failed, pruned) = unless_interrupted(work, leave).await?;
    let pruned = pruned.map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&json!({ "freed": pruned.freed, "removed": gone }))?;
    } else {
        for name in &gone {
            output::text(&output::printable(&format!("removed {name}")))?;
        }
        print_freed("freed", &pruned.freed)?;
    }
    Ok(u8::from(failed))
}

fn print_freed(word: &str, freed: &[DiskItem]) -> Result<()> {
    for item in freed.iter().filter(|item| item.count > 0) {
        let (count, what) = (item.count, called(&item.kind));
        output::text(&format!("{what}: {count}, {}", units::bytes(item.bytes)))?;
    }
    let sum = freed.iter().map(|item| item.bytes).sum();
    output::text(&format!("{word}: {}", units::bytes(sum)))
}

/// Only a person can be asked.
async fn ask(server: &Server, named: &Named) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let hint = "-y does it without asking, --dry-run says what it would be";
        return Err(advice("nobody can be asked here whether to prune", hint));
    }
    let would = server.client.prune(true).await;
    let would = would.map_err(|error| server.explain(error))?;
    let bytes = would.freed.iter().map(|item| item.bytes).sum();
    note(&format!(
        "this frees {} of what can be made again, and logs of ended sandboxes",
        units::bytes(bytes)
    ));
    for line in named.told() {
        note(&format!("and removes for good: {line}"));
    }
    let answered = tokio::task::spawn_blocking(|| {
        let mut err = io::stderr();
        write!(err, "go on? [y/N] ").and_then(|()| err.flush())?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        io::Result::Ok(line)
    });
    match answered.await??.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(advice("nothing was removed", "-y does it without asking")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_takes_room_and_what_would_be_freed() {
        let item = |kind: &str, count, bytes, reclaimable| DiskItem {
            kind: kind.to_owned(),
            count,
            bytes,
            reclaimable,
        };
        let shown = table(&[
            item("running", 2, 3 << 20, 0),
            item("build_cache", 1, 1 << 30, 1 << 30),
        ])
        .render();
        assert_eq!(
            shown,
            "WHAT                 COUNT     SIZE  RECLAIMABLE\n\
             running sandboxes        2  3.0 MiB          0 B\n\
             build cache, of all      1  1.0 GiB      1.0 GiB"
        );
    }

    #[test]
    fn what_cannot_be_made_again_is_named_before_it_goes() {
        let named = Named {
            paused: vec!["i1".to_owned()],
            snapshots: Vec::new(),
            volumes: vec![("v1".to_owned(), "results".to_owned())],
        };
        assert_eq!(
            named.told(),
            [
                "paused sandboxes, with everything in them: i1",
                "volumes that no sandbox has, of: results"
            ]
        );
        assert!(Named::default().told().is_empty());
    }
}
