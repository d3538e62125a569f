//! `PUT /sandboxes/{id}/network`, and the network part of a create.

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    auth::Caller,
    body::OptionalJson,
    error::{ApiError, Result},
    path::SandboxPath,
    router::App,
};

const INSTEAD: &str = "set allow_internet_access to true or false when you create the sandbox";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkBody {
    allow_public_traffic: Option<bool>,
    allow_out: Option<Vec<Value>>,
    deny_out: Option<Vec<Value>>,
    dns_servers: Option<Vec<Value>>,
    egress_proxy: Option<Value>,
    mask_request_host: Option<String>,
    https_ports: Option<Vec<Value>>,
    rules: Option<serde_json::Map<String, Value>>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
}

impl NetworkBody {
    /// Refuses everything that asks for more than the defaults.
    pub(super) fn check(&self) -> Result<()> {
        let filled = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|l| !l.is_empty());
        let asked = [
            (
                self.allow_public_traffic == Some(false),
                "network.allowPublicTraffic: false",
            ),
            (filled(&self.allow_out), "network.allowOut"),
            (filled(&self.deny_out), "network.denyOut"),
            (filled(&self.dns_servers), "network.dnsServers"),
            (self.egress_proxy.is_some(), "network.egressProxy"),
            (self.mask_request_host.is_some(), "network.maskRequestHost"),
            (filled(&self.https_ports), "network.httpsPorts"),
            (
                self.rules.as_ref().is_some_and(|rules| !rules.is_empty()),
                "network.rules",
            ),
        ];
        match asked.into_iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(ApiError::not_supported(what, INSTEAD)),
            None => Ok(()),
        }
    }
}

/// Replaces the whole configuration: what is left out is open again. So far the only success is
/// to ask for what is the case already.
pub(crate) async fn replace(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    OptionalJson(body): OptionalJson<NetworkBody>,
) -> Result<StatusCode> {
    let sandbox = app.control.get(&caller.tenant, &id).await?;
    body.check()?;
    if body.allow_internet_access.unwrap_or(true) == sandbox.spec.network.internet() {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::not_supported(
        "changing the network of a running sandbox",
        INSTEAD,
    ))
}
