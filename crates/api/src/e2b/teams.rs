//! `GET /teams`: a key sees its own team, and itself.

use axum::Json;
use serde::Serialize;

use crate::shared::auth::Caller;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Team {
    #[serde(rename = "teamID")]
    id: String,
    name: String,
    /// The one that the caller has shown; others cannot be told, only their digests are kept.
    api_key: String,
    is_default: bool,
}

pub(crate) async fn list(caller: Caller) -> Json<[Team; 1]> {
    Json([Team {
        id: caller.tenant.id.into(),
        name: caller.tenant.name,
        api_key: caller.key.expose().to_owned(),
        is_default: true,
    }])
}
