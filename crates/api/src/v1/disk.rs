//! `GET /v1/df` and `POST /v1/prune`: what takes room, and freeing it. Ours.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use soulbox_control::{Control, DiskItem};

use crate::{
    router::App,
    shared::{auth::Caller, body::OptionalJson, error::Result},
};

#[derive(Debug, Serialize)]
pub(crate) struct DiskUse {
    /// Whether what is everybody's is among them.
    operator: bool,
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
struct Item {
    kind: &'static str,
    count: u64,
    bytes: u64,
    reclaimable: u64,
}

impl From<DiskItem> for Item {
    fn from(item: DiskItem) -> Self {
        Self {
            kind: item.kind.as_str(),
            count: item.count,
            bytes: item.bytes,
            reclaimable: item.reclaimable,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pruned {
    dry_run: bool,
    freed: Vec<Item>,
}

#[derive(Debug, Default, Deserialize)]
// A dry run that is misspelt must not become a real one.
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PruneBody {
    /// Only says what would be freed.
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn get(State(app): State<App>, caller: Caller) -> Result<Json<DiskUse>> {
    let items = app.control.disk_use(&caller.tenant).await?;
    Ok(Json(DiskUse {
        operator: Control::is_operator(&caller.tenant),
        items: items.into_iter().map(Item::from).collect(),
    }))
}

pub(crate) async fn prune(
    State(app): State<App>,
    caller: Caller,
    OptionalJson(body): OptionalJson<PruneBody>,
) -> Result<Json<Pruned>> {
    let freed: Vec<Item> = if body.dry_run {
        let items = app.control.disk_use(&caller.tenant).await?;
        let items = items.into_iter().filter(|item| item.reclaimable > 0);
        items
            .map(|item| Item {
                bytes: item.reclaimable,
                ..item.into()
            })
            .collect()
    } else {
        let freed = app.control.prune_disk(&caller.tenant).await?;
        freed.into_iter().map(Item::from).collect()
    };
    Ok(Json(Pruned {
        dry_run: body.dry_run,
        freed,
    }))
}
