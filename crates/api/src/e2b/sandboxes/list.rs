//! `GET /sandboxes` and `GET /v2/sandboxes`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::HeaderValue;
use soulbox_control::{Control, Error as ControlError, Reference, Sandbox, Tenant};
use soulbox_types::{SandboxSpec, SandboxState, TemplateId, UnixMillis};

use super::{detail::Listed, metadata_filter::MetadataFilter};
use crate::{
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        page::{Page, Paging, Position},
        query::Query,
        wire::{Instant, parse_timestamp},
    },
};

const TOTAL_RUNNING: &str = "x-total-running";

/// Running ones, newest first, all at once.
pub(crate) async fn v1(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<Listed>>> {
    let filter = metadata_filter(&query)?;
    let mut sandboxes = app.control.list(&caller.tenant);
    sandboxes
        .retain(|s| is_running(s) && filter.as_ref().is_none_or(|f| f.matches(&s.spec.metadata)));
    sandboxes.sort_by(|a, b| {
        let newest_first = b.spec.created_at.cmp(&a.spec.created_at);
        newest_first.then_with(|| a.spec.id.cmp(&b.spec.id))
    });
    Ok(Json(sandboxes.into_iter().map(Listed::from).collect()))
}

pub(crate) async fn v2(State(app): State<App>, caller: Caller, query: Query) -> Result<Response> {
    let paging = Paging::from_query(&query)?;
    let filter = Filter::from_query(&query, &app.control, &caller.tenant)?;
    let mut running = 0_usize;
    let mut gathering = paging.gather(|sandbox: &Sandbox| position(&sandbox.spec));
    app.control.visit(&caller.tenant, |visited| {
        let is_running = visited.state == SandboxState::Running;
        if filter.matches(visited.spec, visited.created_at, is_running) {
            running += usize::from(is_running);
            let position = || position(visited.spec);
            gathering.offer(visited.created_at, position, || Sandbox::from(visited));
        }
    });
    let Page { mut items, next } = gathering.page();
    items.retain(|sandbox| app.control.is_known(&sandbox.spec.id));
    let items: Vec<_> = items.into_iter().map(Listed::from).collect();
    let mut response = Page { items, next }.into_response();
    if filter.states.running {
        response
            .headers_mut()
            .insert(TOTAL_RUNNING, HeaderValue::from(running));
    }
    Ok(response)
}

struct Filter {
    metadata: Option<MetadataFilter>,
    states: States,
    started_after: Option<Instant>,
    template: TemplateFilter,
}

struct States {
    running: bool,
    paused: bool,
}

enum TemplateFilter {
    Any,
    Only(TemplateId),
    /// Those that stand on one of these.
    Snapshot(Vec<TemplateId>),
    /// A template that does not exist has no sandboxes.
    Unknown,
}

impl Filter {
    fn from_query(query: &Query, control: &Control, tenant: &Tenant) -> Result<Self> {
        let started_after = query.text("startedAfter").map(|text| {
            let bad = || ApiError::bad_request("startedAfter must be an RFC 3339 time");
            parse_timestamp(text).ok_or_else(bad)
        });
        Ok(Self {
            metadata: metadata_filter(query)?,
            states: States::from_query(query)?,
            started_after: started_after.transpose()?,
            template: TemplateFilter::from_query(query, control, tenant)?,
        })
    }

    /// Does not look at the spec unless it is asked about: thousands are looked through.
    fn matches(&self, spec: &SandboxSpec, created_at: UnixMillis, is_running: bool) -> bool {
        let state = if is_running {
            self.states.running
        } else {
            self.states.paused
        };
        state
            && self.template.matches(spec)
            && self
                .started_after
                .is_none_or(|after| after.is_not_after(created_at))
            && self
                .metadata
                .as_ref()
                .is_none_or(|filter| filter.matches(&spec.metadata))
    }
}

impl States {
    fn from_query(query: &Query) -> Result<Self> {
        let asked = query.list("state");
        if let Some(bad) = asked
            .iter()
            .find(|state| !matches!(**state, "running" | "paused"))
        {
            let message = format!("state must be running or paused, not {bad:?}");
            return Err(ApiError::bad_request(message));
        }
        let wants = |state| asked.is_empty() || asked.contains(&state);
        Ok(Self {
            running: wants("running"),
            paused: wants("paused"),
        })
    }
}

impl TemplateFilter {
    fn from_query(query: &Query, control: &Control, tenant: &Tenant) -> Result<Self> {
        let Some(text) = query.text("template") else {
            return Ok(Self::Any);
        };
        let reference = Reference::parse(text)?;
        if reference.tag.is_some() {
            return Err(ApiError::bad_request("the template filter takes no tag"));
        }
        Ok(match control.find_template(tenant, &reference) {
            Ok(None) | Err(ControlError::TemplateOfAnother(_)) => Self::Unknown,
            Err(error) => return Err(error.into()),
            Ok(Some(found)) if !found.is_snapshot() => Self::Only(found.info.id),
            Ok(Some(found)) => {
                Self::Snapshot(found.builds.into_iter().filter_map(|b| b.image).collect())
            }
        })
    }

    fn matches(&self, spec: &SandboxSpec) -> bool {
        match self {
            Self::Any => true,
            Self::Only(only) => *only == spec.template,
            Self::Snapshot(images) => spec.snapshot.as_ref().is_some_and(|i| images.contains(i)),
            Self::Unknown => false,
        }
    }
}

fn metadata_filter(query: &Query) -> Result<Option<MetadataFilter>> {
    query
        .text("metadata")
        .map(MetadataFilter::parse)
        .transpose()
}

fn position(spec: &SandboxSpec) -> Position<'_> {
    Position {
        at: spec.created_at,
        id: spec.id.as_str().into(),
    }
}

fn is_running(sandbox: &Sandbox) -> bool {
    sandbox.state == SandboxState::Running
}
