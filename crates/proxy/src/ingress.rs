//! The owner's settings for traffic to a sandbox's ports. They do not apply to envd's port, which
//! authenticates its clients itself.

use http::{HeaderMap, HeaderValue};
use soulbox_types::{ENVD_PORT, SandboxSpec};

use crate::{refusal::Refusal, route::Target};

const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
pub(crate) const ACCESS_TOKEN: &str = "x-access-token";

/// Whether the client shows a token of a sandbox, valid or not.
pub(crate) fn has_token(headers: &HeaderMap) -> bool {
    headers.contains_key(TRAFFIC_TOKEN) || headers.contains_key(ACCESS_TOKEN)
}
const PORT_PLACEHOLDER: &str = "${PORT}";

/// How an admitted request is forwarded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    /// What the server inside sees as `Host`.
    pub(crate) host: Option<HeaderValue>,
    /// Whether it speaks TLS.
    pub(crate) tls: bool,
}

impl Ingress {
    pub(crate) fn of(spec: &SandboxSpec, port: u16) -> Self {
        if port == ENVD_PORT {
            return Self::default();
        }
        let mask = spec.network.mask_request_host.as_deref();
        Self {
            host: mask.and_then(|mask| {
                let host = mask.replace(PORT_PLACEHOLDER, &port.to_string());
                HeaderValue::try_from(host).ok()
            }),
            tls: spec.network.https_ports.contains(&port),
        }
    }
}

/// The token is passed on unchanged: the server inside may check it as well.
pub(crate) fn admit(
    spec: &SandboxSpec,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Ingress, Refusal> {
    if is_admitted(spec, target.port, headers) {
        Ok(Ingress::of(spec, target.port))
    } else {
        Err(Refusal::NotPublic(target.id.clone()))
    }
}

pub(crate) fn is_admitted(spec: &SandboxSpec, port: u16, headers: &HeaderMap) -> bool {
    if port == ENVD_PORT || spec.network.is_public() {
        return true;
    }
    let shown = headers
        .get(TRAFFIC_TOKEN)
        .and_then(|shown| shown.to_str().ok());
    match (&spec.traffic_token, shown) {
        (Some(token), Some(shown)) => token.matches(shown),
        _ => false,
    }
}
