use anyhow::Result;
use jiff::Timestamp;
use serde_json::json;
use soulbox_client::model::ApiKey;

use crate::{
    args::{KeyCommand, ServerArgs},
    context::{Server, unique},
    output::{self, Columns, cell, units},
};

pub(super) async fn run(command: &KeyCommand) -> Result<u8> {
    match command {
        KeyCommand::Create(args) => create(&args.server, &args.name, args.json).await,
        KeyCommand::Ls(args) => list(&args.server, args.json).await,
        KeyCommand::Rm(args) => remove(&args.server, &args.ids).await,
    }
}

async fn create(server: &ServerArgs, name: &str, json: bool) -> Result<u8> {
    let server = Server::connect(server)?;
    let made = server
        .client
        .create_api_key(name)
        .await
        .map_err(|error| server.explain(error))?;
    if json {
        output::json(&json!({ "id": made.id, "name": made.name, "key": made.key.expose() }))?;
    } else {
        output::text(made.key.expose())?;
    }
    Ok(0)
}

async fn list(server: &ServerArgs, json: bool) -> Result<u8> {
    let server = Server::connect(server)?;
    let keys = server
        .client
        .api_keys()
        .await
        .map_err(|error| server.explain(error))?;
    if json {
        output::json(&keys)?;
    } else {
        table(&keys, Timestamp::now()).print()?;
    }
    Ok(0)
}

async fn remove(server: &ServerArgs, ids: &[String]) -> Result<u8> {
    let server = Server::connect(server)?;
    let keys = server
        .client
        .api_keys()
        .await
        .map_err(|error| server.explain(error))?;
    let known: Vec<String> = keys.into_iter().map(|key| key.id).collect();
    for id in ids {
        let id = unique(id, &known)?;
        server.client.delete_api_key(id).await?;
        output::text(&output::printable(id))?;
    }
    Ok(0)
}

fn table(keys: &[ApiKey], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["ID", "NAME", "KEY", "CREATED", "LAST USED"]);
    for key in keys {
        columns.row(vec![
            cell(&key.id),
            cell(&key.name),
            cell(key.mask.display()),
            cell(units::ago(&key.created_at, now)),
            cell(
                key.last_used
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |at| units::ago(at, now)),
            ),
        ]);
    }
    columns
}
