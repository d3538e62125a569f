//! The control plane.

use std::{borrow::Cow, fmt::Display, path::PathBuf, time::Duration};

use http::{HeaderValue, Method, Request, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use soulbox_types::Secret;

use crate::{
    ApiError, Config, Envd, Error, Result,
    base_url::BaseUrl,
    transport::{self, Answer, Transport},
};

mod broken;
mod copies;
mod disk;
mod events;
mod inspect;
mod keys;
mod observe;
mod ports;
mod sandboxes;
mod secrets;
mod templates;
mod volumes;

pub use broken::{Disk, DiskChunk};
pub use events::EVENTS_PER_PAGE;
pub use ports::PortStream;

/// What a create may take: the server waits for envd.
const CREATE_LIMIT: Duration = Duration::from_mins(1);
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// More pages than any server should have: a server that always names a next page must not keep
/// us forever.
const MAX_PAGES: usize = 1000;
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
    api: BaseUrl,
    data: BaseUrl,
    key: Secret,
}

impl Client {
    /// `extra_roots`: a PEM file besides the system's roots (`SSL_CERT_FILE`).
    pub fn new(config: &Config, extra_roots: Option<PathBuf>) -> Self {
        Self {
            transport: Transport::new(extra_roots),
            api: config.api_url.clone(),
            data: config.sandbox_url.clone(),
            key: config.api_key.clone(),
        }
    }

    /// The way into one sandbox.
    pub fn envd(&self, id: &str, token: Option<Secret>) -> Envd {
        Envd::new(self.transport.clone(), self.data.clone(), id, token)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, what: &'static str) -> Result<T> {
        parse(&self.call(Method::GET, path, None, what, CALL_LIMIT).await?)
    }

    /// All pages of a list. `path` has a query already.
    async fn pages<T: DeserializeOwned>(&self, path: &str, what: &'static str) -> Result<Vec<T>> {
        let mut found = Vec::new();
        let mut next = path.to_owned();
        for _ in 0..MAX_PAGES {
            let answer = self
                .call(Method::GET, &next, None, what, CALL_LIMIT)
                .await?;
            found.extend(parse::<Vec<T>>(&answer)?);
            let token = answer.headers.get("x-next-token");
            match token.and_then(|token| token.to_str().ok()) {
                Some(token) if !token.is_empty() => {
                    next = format!("{path}&nextToken={}", segment(token));
                }
                _ => return Ok(found),
            }
        }
        Err(Error::protocol("the list does not end"))
    }

    /// `false`: there was none.
    async fn delete(&self, path: &str, what: &'static str) -> Result<bool> {
        match self
            .call(Method::DELETE, path, None, what, CALL_LIMIT)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        what: &'static str,
        limit: Duration,
    ) -> Result<Answer> {
        let request = self.request(method, path, body)?;
        let answer = self.transport.unary(request, what, limit).await?;
        if answer.status.is_success() {
            Ok(answer)
        } else {
            Err(Error::Api(refusal(&answer)))
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Request<transport::Body>> {
        let uri = self
            .api
            .join(path)
            .map_err(|error| Error::protocol(error.to_string()))?;
        let mut key = HeaderValue::try_from(self.key.expose())
            .map_err(|_| Error::protocol("the API key has characters that no header can hold"))?;
        key.set_sensitive(true);
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header("x-api-key", key);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request
            .body(body.map_or_else(transport::empty, transport::full))
            .map_err(|error| Error::protocol(error.to_string()))
    }
}

fn json(body: &impl Serialize) -> Result<Option<Vec<u8>>> {
    serde_json::to_vec(body)
        .map(Some)
        .map_err(|error| Error::protocol(error.to_string()))
}

fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T> {
    serde_json::from_slice(&answer.body).map_err(|error| Error::protocol(error.to_string()))
}

fn segment(text: &str) -> impl Display + '_ {
    utf8_percent_encode(text, SEGMENT)
}

/// E2B's error body, or what can be said of one that is not.
pub(crate) fn refusal(answer: &Answer) -> ApiError {
    #[derive(Deserialize)]
    struct Wire<'a> {
        code: i64,
        #[serde(borrow)]
        message: Cow<'a, str>,
        error_code: Option<String>,
    }
    let status = answer.status;
    match serde_json::from_slice::<Wire<'_>>(&answer.body) {
        Ok(wire) => ApiError {
            status,
            code: wire.code,
            message: wire.message.into_owned(),
            error_code: wire.error_code,
        },
        Err(_) => ApiError {
            status,
            code: i64::from(status.as_u16()),
            message: plain_message(status, &answer.body),
            error_code: None,
        },
    }
}

fn plain_message(status: StatusCode, body: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text: String = String::from_utf8_lossy(body)
        .trim()
        .chars()
        .take(SHOWN)
        .collect();
    if text.is_empty() || text.starts_with('<') {
        format!("the server answered {status}")
    } else {
        text
    }
}
