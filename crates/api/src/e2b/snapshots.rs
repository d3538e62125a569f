//! Snapshots: `POST /sandboxes/{id}/snapshots` and `GET /snapshots`. They are deleted, tagged and
//! used as templates are.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Reference, SnapshotInfo};
use soulbox_types::{PauseMode, SandboxId};

use crate::{
    e2b::sandboxes::Restored,
    router::App,
    shared::{
        auth::Caller,
        body::OptionalJson,
        error::{ApiError, Result},
        page::{Page, Paging, Position},
        path::{SandboxPath, sandbox_id},
        query::Query,
    },
};

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SnapshotBody {
    name: Option<String>,
    /// Clients send it only when they are asked to.
    memory: Option<bool>,
}

/// E2B's `SnapshotInfo`.
#[derive(Debug, Serialize)]
pub(crate) struct SnapshotAnswer {
    #[serde(rename = "snapshotID")]
    id: String,
    names: Vec<String>,
    #[serde(flatten)]
    restored: Restored,
}

impl From<SnapshotInfo> for SnapshotAnswer {
    fn from(info: SnapshotInfo) -> Self {
        Self {
            id: info.id(),
            names: info.full_name().into_iter().collect(),
            restored: PauseMode::Filesystem.into(),
        }
    }
}

/// The sandbox goes on.
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    OptionalJson(body): OptionalJson<SnapshotBody>,
) -> Result<(StatusCode, Json<SnapshotAnswer>)> {
    if body.memory == Some(true) {
        // Whether it exists is answered first.
        app.control.get(&caller.tenant, &id).await?;
        return Err(ApiError::not_supported(
            "a snapshot of a sandbox's memory",
            "leave `memory` (`mode`) out or ask for the filesystem, or pause the sandbox, which \
             keeps its memory",
        ));
    }
    let name = body.name.as_deref().filter(|name| !name.is_empty());
    let info = app
        .control
        .create_snapshot(&caller.tenant, &id, name)
        .await?;
    Ok((StatusCode::CREATED, Json(info.into())))
}

/// Newest first.
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Page<SnapshotAnswer>> {
    let paging = Paging::from_query(&query)?;
    let filter = Filter::from_query(&query)?;
    let mut snapshots = app.control.snapshots(&caller.tenant);
    snapshots.retain(|snapshot| filter.matches(snapshot));
    let Page { items, next } = paging.cut(snapshots, |snapshot| Position {
        at: snapshot.created_at,
        id: format!("{}.{}", snapshot.template, snapshot.tag).into(),
    });
    Ok(Page {
        items: items.into_iter().map(SnapshotAnswer::from).collect(),
        next,
    })
}

struct Filter {
    source: Option<SandboxId>,
    name: Option<Reference>,
}

impl Filter {
    fn from_query(query: &Query) -> Result<Self> {
        let name = query.text("name").map(Reference::parse).transpose()?;
        let source = query.text("sandboxID").map(sandbox_id).transpose()?;
        Ok(Self { source, name })
    }

    fn matches(&self, snapshot: &SnapshotInfo) -> bool {
        let named = |name: &Reference| {
            let own = name.namespace.as_ref();
            own.is_none_or(|namespace| *namespace == snapshot.namespace)
                && (snapshot.name.as_ref() == Some(&name.name)
                    || snapshot.template.as_str() == name.name)
                && name.tag.as_ref().is_none_or(|tag| *tag == snapshot.tag)
        };
        let from = |source: &SandboxId| *source == snapshot.source;
        self.source.as_ref().is_none_or(from) && self.name.as_ref().is_none_or(named)
    }
}
