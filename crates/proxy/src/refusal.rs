//! The responses of the proxy itself. The texts marked as contract are compared by E2B's
//! SDKs; a 502 with another text makes them raise instead of reporting "not running".

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use soulbox_types::SandboxId;

use crate::Body;

/// Where E2B's clients look for the code interpreter.
const INTERPRETER_PORT: u16 = 49_999;
/// In seconds. The request has waited before.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    BadRequest(&'static str),
    ControlRoute {
        path: String,
    },
    BadSignature,
    NotFound(SandboxId),
    /// A token that belongs to no sandbox, or to none any more.
    UnknownToken,
    PortClosed {
        id: SandboxId,
        port: u16,
    },
    BadAnswer {
        id: SandboxId,
        port: u16,
    },
    NoAnswer {
        id: SandboxId,
        port: u16,
    },
    TooManyStreams(SandboxId),
    NoRoom(SandboxId),
    MachineStuck(SandboxId),
    TooManyRunning(SandboxId),
    TooManyOpen(SandboxId),
    MayNotWake(SandboxId),
    NotPublic(SandboxId),
    Changing(SandboxId),
}

#[derive(Debug, Serialize)]
struct Payload<'a> {
    #[serde(rename = "sandboxId", skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<&'a str>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    code: u16,
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::ControlRoute { .. } => StatusCode::NOT_FOUND,
            Self::BadSignature => StatusCode::UNAUTHORIZED,
            Self::NotFound(_)
            | Self::UnknownToken
            | Self::PortClosed { .. }
            | Self::BadAnswer { .. } => StatusCode::BAD_GATEWAY,
            Self::NoAnswer { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::TooManyStreams(_) | Self::TooManyRunning(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NoRoom(_) | Self::MachineStuck(_) | Self::TooManyOpen(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::MayNotWake(_) | Self::NotPublic(_) => StatusCode::FORBIDDEN,
            Self::Changing(_) => StatusCode::CONFLICT,
        }
    }

    fn text(&self) -> &'static str {
        match self {
            Self::BadRequest(text) => text,
            Self::ControlRoute { .. } => "not found",
            Self::BadSignature => "invalid signature",
            Self::NotFound(_) | Self::UnknownToken => "The sandbox was not found", // contract
            Self::PortClosed { .. } => "The sandbox is running but port is not open", // contract
            Self::BadAnswer { .. } => {
                "The sandbox is running but what listens on the port did not answer with valid HTTP"
            }
            Self::NoAnswer { .. } => {
                "The sandbox is running but what listens on the port gave no answer in time"
            }
            Self::TooManyStreams(_) => {
                "The sandbox has too many open connections; close some and try again"
            }
            Self::NoRoom(_) => {
                "The sandbox is paused, and the server has no room to wake it; try again soon"
            }
            Self::MachineStuck(_) => {
                "The sandbox is paused, and the server's machine is in a state in which none is \
                 woken; its operator has to look at it"
            }
            Self::TooManyRunning(_) => {
                "The sandbox is paused, and its owner has as many running ones as allowed: kill or \
                 pause some first"
            }
            Self::TooManyOpen(_) => {
                "The server has too many open connections to sandboxes; try again soon"
            }
            Self::MayNotWake(_) => {
                "The sandbox is paused, and only requests with its access token wake it"
            }
            Self::NotPublic(_) => {
                "The sandbox is not public: send its token in the header e2b-traffic-access-token"
            }
            Self::Changing(_) => "The sandbox is being paused or resumed; try again in a moment",
        }
    }

    /// Beside the message, which clients compare.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::PortClosed {
                port: INTERPRETER_PORT,
                ..
            } => Some(
                "this is the code interpreter's port, and the sandbox's template has none or it has \
                 not started yet: run_code needs the template code-interpreter-v1 (soulbox template \
                 build --builtin code-interpreter-v1), or one built from it",
            ),
            _ => None,
        }
    }

    fn subject(&self) -> (Option<&SandboxId>, Option<u16>) {
        match self {
            Self::BadRequest(_)
            | Self::ControlRoute { .. }
            | Self::BadSignature
            | Self::UnknownToken => (None, None),
            Self::NotFound(id)
            | Self::TooManyStreams(id)
            | Self::NoRoom(id)
            | Self::MachineStuck(id)
            | Self::TooManyRunning(id)
            | Self::TooManyOpen(id)
            | Self::MayNotWake(id)
            | Self::NotPublic(id)
            | Self::Changing(id) => (Some(id), None),
            Self::PortClosed { id, port }
            | Self::BadAnswer { id, port }
            | Self::NoAnswer { id, port } => (Some(id), Some(*port)),
        }
    }

    pub(crate) fn into_response(self, audience: Audience) -> Response<Body> {
        let status = self.status();
        let text = self.text();
        let (id, port) = self.subject();
        if let Self::BadRequest(text) = self {
            return answer(status, "text/plain; charset=utf-8", text.into());
        }
        if let Some(id) = id
            && audience == Audience::Person
        {
            return answer(
                status,
                "text/html; charset=utf-8",
                page(status, text, id, port).into(),
            );
        }
        let path = match &self {
            Self::ControlRoute { path } => Some(path.as_str()),
            _ => None,
        };
        let payload = Payload {
            sandbox_id: id.map(SandboxId::as_str),
            message: text,
            hint: self.hint(),
            port,
            path,
            code: status.as_u16(),
        };
        let json = serde_json::to_vec(&payload).unwrap_or_default();
        answer(status, "application/json; charset=utf-8", json.into())
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(
        Full::new(body)
            .map_err(|never| match never {})
            .boxed_unsync(),
    );
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    // Browser clients of the SDK must be able to read why.
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    response
}

/// Who reads the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A user with a browser, who gets a page.
    Person,
    Program,
}

impl Audience {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or("")
        };
        let agent = text("user-agent");
        let engine = ["AppleWebKit", "Gecko", "Trident", "Presto"];
        let script = ["cors", "no-cors", "same-origin", "websocket"];
        if engine.iter().any(|engine| agent.contains(engine))
            && !script.contains(&text("sec-fetch-mode"))
            && !text("accept").contains("json")
        {
            Self::Person
        } else {
            Self::Program
        }
    }
}

fn page(status: StatusCode, text: &str, id: &SandboxId, port: Option<u16>) -> String {
    let port = port
        .map(|port| format!(", port {port}"))
        .unwrap_or_default();
    let code = status.as_u16();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{code}: {text}</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:18vh auto;padding:0 1rem;\
         color:#222;background:#fff}}code{{color:#666}}@media(prefers-color-scheme:dark){{body{{\
         color:#ddd;background:#161616}}code{{color:#999}}}}</style>\
         <h1>{code}</h1><p>{text}.</p><p><code>{id}{port}</code></p></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_looks_for_the_code_interpreter_in_vain_is_told_which_template_has_it() {
        let body = async |port| {
            let id: SandboxId = "iabc".parse().unwrap();
            let refusal = Refusal::PortClosed { id, port };
            let response = refusal.into_response(Audience::Program);
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()
        };
        let told = body(49_999).await;
        assert_eq!(
            told["message"],
            "The sandbox is running but port is not open"
        );
        assert!(
            told["hint"]
                .as_str()
                .unwrap()
                .contains("code-interpreter-v1")
        );
        assert_eq!(body(49_983).await.get("hint"), None);
    }

    fn id() -> SandboxId {
        "iabc".parse().unwrap()
    }

    async fn json(refusal: Refusal) -> (u16, serde_json::Value) {
        let response = refusal.into_response(Audience::Program);
        assert_eq!(
            response.headers()["content-type"],
            "application/json; charset=utf-8"
        );
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_missing_sandbox_is_a_502_with_the_text_that_the_sdks_compare() {
        let (status, body) = json(Refusal::NotFound(id())).await;
        assert_eq!(status, 502);
        assert_eq!(
            body,
            serde_json::json!({"sandboxId": "iabc", "message": "The sandbox was not found", "code": 502})
        );
    }

    #[tokio::test]
    async fn a_closed_port_is_a_502_that_names_the_port() {
        let (status, body) = json(Refusal::PortClosed {
            id: id(),
            port: 8080,
        })
        .await;
        assert_eq!(status, 502);
        assert_eq!(
            body,
            serde_json::json!({
                "sandboxId": "iabc",
                "message": "The sandbox is running but port is not open",
                "port": 8080,
                "code": 502
            })
        );
    }

    #[tokio::test]
    async fn a_control_route_is_a_404_that_repeats_the_path() {
        let (status, body) = json(Refusal::ControlRoute {
            path: "/init".into(),
        })
        .await;
        assert_eq!(status, 404);
        assert_eq!(
            body,
            serde_json::json!({"message": "not found", "path": "/init", "code": 404})
        );
    }

    #[test]
    fn only_a_person_in_front_of_a_browser_gets_a_page() {
        let browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130 Safari/537.36";
        let kind = |fields: &[(&'static str, &'static str)]| {
            let headers: HeaderMap = fields
                .iter()
                .map(|(name, value)| {
                    (
                        header::HeaderName::from_static(name),
                        HeaderValue::from_static(value),
                    )
                })
                .collect();
            let response = Refusal::NotFound(id()).into_response(Audience::of(&headers));
            assert_eq!(response.status(), 502);
            response.headers()["content-type"].to_str().unwrap()[..9].to_owned()
        };
        assert_eq!(
            kind(&[("user-agent", browser), ("accept", "text/html,*/*")]),
            "text/html"
        );
        assert_eq!(
            kind(&[("user-agent", browser), ("accept", "application/json")]),
            "applicati"
        );
        assert_eq!(
            kind(&[("user-agent", browser), ("sec-fetch-mode", "cors")]),
            "applicati"
        );
        assert_eq!(kind(&[("user-agent", "curl/8.5")]), "applicati");
    }
}
