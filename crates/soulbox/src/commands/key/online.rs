use anyhow::Result;
use soulbox_client::model::ApiKey;

use super::NewKey;
use crate::context::Server;

pub(super) async fn create(server: &Server, name: &str) -> Result<NewKey> {
    let made = server
        .client
        .create_api_key(name)
        .await
        .map_err(|error| server.explain(error))?;
    Ok(NewKey {
        id: made.id,
        name: made.name,
        key: made.key,
    })
}

pub(super) async fn list(server: &Server) -> Result<Vec<ApiKey>> {
    server
        .client
        .api_keys()
        .await
        .map_err(|error| server.explain(error))
}
