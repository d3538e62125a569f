//! Folders that outlive sandboxes.

use anyhow::Result;
use serde_json::Value;
use soulbox_client::model::Volume;

use super::{each, inspect::without_tokens};
use crate::{
    args::{VolumeCommand, VolumeInspectArgs, VolumeListArgs, VolumeRemoveArgs},
    context::{Server, unique},
    output::{self, Columns, cell},
    report::advice,
    suggest::did_you_mean,
};

pub(super) async fn run(command: &VolumeCommand) -> Result<u8> {
    match command {
        VolumeCommand::Create(args) => {
            let server = Server::connect(&args.server)?;
            let made = server.client.create_volume(&args.name).await;
            let made = made.map_err(|error| server.explain(error))?;
            if args.json {
                output::json(&made)?;
            } else {
                output::text(&output::printable(&made.id))?;
            }
            Ok(0)
        }
        VolumeCommand::Ls(args) => list(args).await,
        VolumeCommand::Inspect(args) => inspect(args).await,
        VolumeCommand::Rm(args) => remove(args).await,
    }
}

async fn list(args: &VolumeListArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let volumes = all(&server).await?;
    if args.json {
        output::json(&volumes)?;
    } else if args.quiet {
        for volume in &volumes {
            output::text(&output::printable(&volume.name))?;
        }
    } else {
        let mut columns = Columns::new(&["NAME", "VOLUME"]);
        for volume in &volumes {
            columns.row(vec![cell(&volume.name), cell(&volume.id)]);
        }
        columns.print()?;
    }
    Ok(0)
}

async fn inspect(args: &VolumeInspectArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let volumes = all(&server).await?;
    let mut shown: Vec<Value> = Vec::new();
    for name in &args.volumes {
        let volume = find(name, &volumes)?;
        let found = server.client.inspect_volume(&volume.id).await;
        shown.push(without_tokens(
            found.map_err(|error| server.explain(error))?,
        ));
    }
    output::json(&shown)?;
    Ok(0)
}

async fn remove(args: &VolumeRemoveArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let volumes = all(&server).await?;
    each("volume", &args.volumes, async |name| {
        let volume = find(name, &volumes)?;
        server.client.delete_volume(&volume.id).await?;
        Ok(volume.name.clone())
    })
    .await
}

pub(super) async fn all(server: &Server) -> Result<Vec<Volume>> {
    let volumes = server.client.volumes().await;
    volumes.map_err(|error| server.explain(error))
}

/// By name, id, or the beginning of an id.
pub(super) fn find<'a>(name: &str, volumes: &'a [Volume]) -> Result<&'a Volume> {
    if let Some(found) = volumes.iter().find(|one| one.name == name) {
        return Ok(found);
    }
    let ids: Vec<String> = volumes.iter().map(|one| one.id.clone()).collect();
    unique("volume", "soulbox volume ls", name, &ids)
        .ok()
        .and_then(|id| volumes.iter().find(|one| one.id == id))
        .ok_or_else(|| {
            let names = volumes.iter().map(|one| one.name.as_str());
            let hint = did_you_mean(name, names, "`soulbox volume ls` shows the volumes");
            advice(format!("there is no volume {name}"), hint)
        })
}
