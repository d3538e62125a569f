use anyhow::Result;
use jiff::Timestamp;
use soulbox_client::{
    config::data_dir,
    model::{ApiKey, KeyMask},
};
use soulbox_server::{KeyStore, ListedKey};
use soulbox_types::UnixMillis;

use super::{KeyBackend, NewKey};
use crate::{
    args::ServerArgs,
    context::{flags, variable},
};

pub(super) async fn open(server: &ServerArgs) -> Result<KeyBackend> {
    let folder = data_dir(&flags(server), variable);
    Ok(KeyBackend::Folder(Box::new(KeyStore::open(&folder).await?)))
}

pub(super) async fn create(store: &KeyStore, name: &str) -> Result<NewKey> {
    let (key, listed) = store.create(name).await?;
    Ok(NewKey {
        id: listed.id,
        name: listed.name,
        key,
    })
}

pub(super) async fn list(store: &KeyStore) -> Result<Vec<ApiKey>> {
    Ok(store
        .list()
        .await?
        .into_iter()
        .map(as_the_server_says_it)
        .collect())
}

/// One shape for both places.
fn as_the_server_says_it(key: ListedKey) -> ApiKey {
    let (start, end) = key.masked.split_once("...").unwrap_or((&key.masked, ""));
    let (prefix, first) = start.split_once('_').unwrap_or(("", start));
    ApiKey {
        mask: KeyMask {
            prefix: format!("{prefix}_"),
            value_length: 40,
            masked_value_prefix: first.to_owned(),
            masked_value_suffix: end.to_owned(),
        },
        id: key.id,
        name: key.name,
        created_at: timestamp(key.created_at),
        last_used: key.last_used_at.map(timestamp),
    }
}

fn timestamp(at: UnixMillis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis)
        .unwrap_or(Timestamp::MAX)
        .to_string()
}
