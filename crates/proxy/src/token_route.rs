//! Requests for envd that name no sandbox, only its token: npm e2b before 2.14 sends files so, and
//! PyPI e2b 2.7 to 2.25 everything after the static `Sandbox.connect(id)`, when a sandbox URL is set.
//!
//! The token alone decides, and only about envd's own routes: nothing else on a shared host is for a
//! sandbox. Finding its sandbox costs one hash ([`soulbox_runtime::StatusCache::of_access_token`]).

use http::{HeaderMap, Uri};

use crate::ingress::ACCESS_TOKEN;

const ROUTES: [&str; 5] = ["/health", "/files", "/files/compose", "/metrics", "/envs"];
const SERVICES: [&str; 2] = ["/process.Process/", "/filesystem.Filesystem/"];

/// The token, if this is a request for envd.
pub(crate) fn token_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let path = uri.path();
    if !ROUTES.contains(&path) && !SERVICES.iter().any(|service| path.starts_with(service)) {
        return None;
    }
    let mut shown = headers.get_all(ACCESS_TOKEN).iter();
    let token = shown.next()?.to_str().ok()?;
    // Two of them name two sandboxes, or none.
    shown.next().is_none().then(|| token.to_owned())
}
