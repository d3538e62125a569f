//! API keys: through the server, or straight in its data folder when there is no key to show it.

use anyhow::Result;
use jiff::Timestamp;
use serde_json::json;
use soulbox_client::{config::ConfigError, model::ApiKey};
use soulbox_types::Secret;

use crate::{
    args::{KeyCommand, Offline, ServerArgs},
    context::{Server, unique},
    output::{self, Columns, cell, units},
    report::advice,
};

mod offline;
mod online;

/// Where keys are managed: through the server, or in its data folder.
enum KeyBackend {
    Server(Box<Server>),
    Folder(Box<soulbox_server::KeyStore>),
}

pub(super) async fn run(command: &KeyCommand) -> Result<u8> {
    match command {
        KeyCommand::Create(args) => {
            let made = KeyBackend::open(&args.server, args.offline)
                .await?
                .create(&args.name)
                .await?;
            show_new(&made, args.json)?;
        }
        KeyCommand::Ls(args) => {
            let keys = KeyBackend::open(&args.server, args.offline)
                .await?
                .list()
                .await?;
            if args.json {
                output::json(&keys)?;
            } else {
                table(&keys, Timestamp::now()).print()?;
            }
        }
        KeyCommand::Rm(args) => {
            remove(
                &KeyBackend::open(&args.server, args.offline).await?,
                &args.ids,
            )
            .await?;
        }
    }
    Ok(0)
}

async fn remove(keys: &KeyBackend, ids: &[String]) -> Result<()> {
    let known = keys.list().await?;
    let known_ids: Vec<String> = known.iter().map(|key| key.id.clone()).collect();
    for id in ids {
        let id = unique("key", "soulbox key ls", id, &known_ids)?;
        let own = |server: &Server| {
            known
                .iter()
                .any(|key| key.id == id && server.uses(&key.mask))
        };
        if matches!(keys, KeyBackend::Server(server) if own(server)) {
            let hint =
                "show another key with --api-key; the data folder's `env` file needs one too";
            return Err(advice("this is the key that the command itself uses", hint));
        }
        keys.remove(id).await?;
        output::text(&output::printable(id))?;
    }
    Ok(())
}

fn lacks_key(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            ConfigError::NoKey { .. }
                | ConfigError::NoServer { .. }
                | ConfigError::Incomplete { .. }
        )
    )
}

struct NewKey {
    id: String,
    name: String,
    key: Secret,
}

impl KeyBackend {
    /// Whoever can read the data folder needs no key to make one.
    async fn open(args: &ServerArgs, offline: Offline) -> Result<Self> {
        if offline.offline {
            return offline::open(args).await;
        }
        match Server::connect(args) {
            Ok(server) => Ok(Self::Server(Box::new(server))),
            Err(error) if lacks_key(&error) => offline::open(args).await.map_err(|_| error),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, name: &str) -> Result<NewKey> {
        match self {
            Self::Server(server) => online::create(server, name).await,
            Self::Folder(store) => offline::create(store, name).await,
        }
    }

    async fn list(&self) -> Result<Vec<ApiKey>> {
        match self {
            Self::Server(server) => online::list(server).await,
            Self::Folder(store) => offline::list(store).await,
        }
    }

    async fn remove(&self, id: &str) -> Result<()> {
        match self {
            Self::Server(server) => Ok(server.client.delete_api_key(id).await?),
            Self::Folder(store) => Ok(store.remove(id).await?),
        }
    }
}

fn show_new(made: &NewKey, json: bool) -> Result<()> {
    if json {
        output::json(&json!({ "id": made.id, "name": made.name, "key": made.key.expose() }))
    } else {
        output::text(made.key.expose())
    }
}

fn table(keys: &[ApiKey], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["ID", "NAME", "KEY", "CREATED", "LAST USED"]);
    for key in keys {
        let last_used = key.last_used.as_ref().map(|at| units::ago(at, now));
        columns.row(vec![
            cell(&key.id),
            cell(&key.name),
            cell(key.mask.display()),
            cell(units::ago(&key.created_at, now)),
            cell(last_used.as_deref().unwrap_or("-")),
        ]);
    }
    columns
}
