//! Keeping the files of sandboxes.

use anyhow::Result;
use soulbox_client::model::Snapshot;

use super::each;
use crate::{
    args::{SnapshotCommand, SnapshotCreateArgs, SnapshotListArgs, SnapshotRemoveArgs},
    context::Server,
    interrupts::unless_interrupted,
    output::{self, Columns, cell},
    report::advice,
    suggest::did_you_mean,
};

pub(super) async fn run(command: &SnapshotCommand) -> Result<u8> {
    match command {
        SnapshotCommand::Create(args) => create(args).await,
        SnapshotCommand::Ls(args) => list(args).await,
        SnapshotCommand::Rm(args) => remove(args).await,
    }
}

async fn create(args: &SnapshotCreateArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    let taking = server.client.snapshot(&id, args.name.as_deref());
    let leave = "the server goes on with it: `soulbox snapshot ls` shows it when it is done";
    let made = unless_interrupted(taking, leave)
        .await?
        .map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&made)?;
    } else {
        output::text(&output::printable(&made.id))?;
    }
    Ok(0)
}

async fn list(args: &SnapshotListArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let snapshots = server.client.snapshots(args.sandbox.as_deref()).await;
    let snapshots = snapshots.map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&snapshots)?;
    } else if args.quiet {
        for snapshot in &snapshots {
            output::text(&output::printable(&snapshot.id))?;
        }
    } else {
        let mut columns = Columns::new(&["SNAPSHOT", "NAMES"]);
        for snapshot in &snapshots {
            columns.row(vec![cell(&snapshot.id), cell(snapshot.names.join(" "))]);
        }
        columns.print()?;
    }
    Ok(0)
}

async fn remove(args: &SnapshotRemoveArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let known = server.client.snapshots(None).await;
    let known = known.map_err(|error| server.explain(error))?;
    each("snapshot", &args.snapshots, async |name| {
        // Deleted as templates are: one that is a template must not go by mistake.
        let Some(snapshot) = known.iter().find(|one| is_called(one, name)) else {
            let names = known
                .iter()
                .flat_map(|one| one.names.iter().chain([&one.id]))
                .map(|own| without_tag(own.rsplit('/').next().unwrap_or(own)));
            let look = "`soulbox snapshot ls` shows the snapshots";
            let hint = did_you_mean(name, names, look);
            return Err(advice(format!("there is no snapshot {name}"), hint));
        };
        let id = without_tag(&snapshot.id);
        server.client.delete_template(id).await?;
        Ok(id.to_owned())
    })
    .await
}

/// By its id, with a tag or without, or by its name, with its team's or without.
pub(super) fn is_called(snapshot: &Snapshot, name: &str) -> bool {
    let is = |own: &str| {
        let short = own.rsplit('/').next().unwrap_or(own);
        [own, short, without_tag(own), without_tag(short)].contains(&name)
    };
    is(&snapshot.id) || snapshot.names.iter().any(|own| is(own))
}

fn without_tag(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_known_by_its_id_and_by_its_names() {
        let snapshot = Snapshot {
            id: "abc:default".to_owned(),
            names: vec!["team/before:v1".to_owned()],
        };
        for name in [
            "abc",
            "abc:default",
            "before",
            "before:v1",
            "team/before:v1",
        ] {
            assert!(is_called(&snapshot, name), "{name}");
        }
        assert!(!is_called(&snapshot, "before:v2") && !is_called(&snapshot, "ab"));
    }
}
