//! SoulBox's own: a port of a sandbox as a stream of raw bytes, after an upgrade to `tcp`.

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use soulbox_control::{Error as ControlError, ErrorCode};
use soulbox_proxy::{Proxy, asks_for_port};
use soulbox_types::{ENVD_PORT, SandboxState};

use crate::{
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        path::{Segment, sandbox_id},
    },
};

/// The proxy comes with the request, from whoever listens.
pub(crate) async fn open(
    State(app): State<App>,
    caller: Caller,
    Segment((id, port)): Segment<(String, String)>,
    proxy: Option<Extension<Proxy>>,
    request: Request,
) -> Result<Response> {
    let id = sandbox_id(&id)?;
    tracing::Span::current().record("sandbox_id", id.as_str());
    let port = port_number(&port)?;
    let sandbox = app.control.get(&caller.tenant, &id).await?;
    if !asks_for_port(request.version(), request.headers()) {
        let hint = "send `Connection: Upgrade` and `Upgrade: tcp` over HTTP/1.1";
        return Err(ApiError::bad_request("this route is a stream of raw bytes").hint(hint));
    }
    if sandbox.state == SandboxState::Paused && !sandbox.spec.lifecycle.auto_resume {
        return Err(ControlError::SandboxPaused { id }.into());
    }
    let Some(Extension(proxy)) = proxy else {
        let message = "this listener has no way into sandboxes";
        return Err(ApiError::new(ErrorCode::OperationFailed, message));
    };
    let response = proxy.tunnel(id, port, request).await;
    Ok(response.map(Body::new))
}

fn port_number(text: &str) -> Result<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port > 0);
    let port = port.ok_or_else(|| ApiError::bad_request("a port is a number from 1 to 65535"))?;
    if port == ENVD_PORT {
        let message = format!("port {ENVD_PORT} is the sandbox's agent");
        let hint = "use the routes for commands and files";
        return Err(ApiError::bad_request(message).hint(hint));
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_ports_that_may_be_reached_are_ports() {
        for good in ["1", "80", "65535", "0080"] {
            assert!(port_number(good).is_ok(), "{good}");
        }
        for bad in ["", "0", "65536", "-1", "+80", "http", "8 0", "49983"] {
            assert!(port_number(bad).is_err(), "{bad}");
        }
    }
}
