//! `PUT /sandboxes/{id}/network`, and the network part of a create and of a sandbox's detail.

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use soulbox_types::NetworkPolicy;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        body::Json,
        error::{ApiError, Result},
        path::SandboxPath,
    },
};

const INSTEAD: &str = "use IP addresses, CIDR ranges and domains in allowOut, and denyOut";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkBody {
    allow_public_traffic: Option<bool>,
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    dns_servers: Option<Vec<Value>>,
    egress_proxy: Option<Value>,
    mask_request_host: Option<String>,
    https_ports: Option<Vec<u16>>,
    rules: Option<serde_json::Map<String, Value>>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
}

impl NetworkBody {
    /// The request, without what is asked for beside `network` on a create. What is not built yet is
    /// refused; the control plane checks the rest.
    pub(super) fn policy(self) -> Result<NetworkPolicy> {
        let (allow_out, deny_out) = (
            self.allow_out.unwrap_or_default(),
            self.deny_out.unwrap_or_default(),
        );
        let asked = [
            (
                self.dns_servers.is_some_and(|list| !list.is_empty()),
                "network.dnsServers",
            ),
            (self.egress_proxy.is_some(), "network.egressProxy"),
            (
                self.rules.is_some_and(|rules| !rules.is_empty()),
                "network.rules",
            ),
        ];
        if let Some((_, what)) = asked.into_iter().find(|(asked, _)| *asked) {
            return Err(ApiError::not_supported(what, INSTEAD));
        }
        Ok(NetworkPolicy {
            allow_internet: self.allow_internet_access,
            allow_out,
            deny_out,
            allow_public_traffic: self.allow_public_traffic,
            mask_request_host: self.mask_request_host,
            https_ports: self.https_ports.unwrap_or_default(),
        })
    }
}

/// E2B's `SandboxNetworkConfig`, as far as it was asked for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkDetail {
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_public_traffic: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow_out: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny_out: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask_request_host: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    https_ports: Vec<u16>,
}

impl NetworkDetail {
    /// `None` when nothing was asked for but, at most, the internet.
    pub(super) fn of(policy: &NetworkPolicy) -> Option<Self> {
        let plain = NetworkPolicy {
            allow_internet: policy.allow_internet,
            ..NetworkPolicy::default()
        };
        (*policy != plain).then(|| Self {
            allow_public_traffic: policy.allow_public_traffic,
            allow_out: policy.allow_out.clone(),
            deny_out: policy.deny_out.clone(),
            mask_request_host: policy.mask_request_host.clone(),
            https_ports: policy.https_ports.clone(),
        })
    }
}

/// Replaces what the sandbox may reach: what is left out is open again. Who may reach the sandbox
/// is not asked here.
pub(crate) async fn replace(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    Json(body): Json<NetworkBody>,
) -> Result<StatusCode> {
    // Whether it exists is answered first.
    app.control.get(&caller.tenant, &id).await?;
    let policy = body.policy()?;
    app.control.set_egress(&caller.tenant, &id, policy).await?;
    Ok(StatusCode::NO_CONTENT)
}
