//! One request and its answer, redirects included.

use std::{collections::HashMap, error::Error as _, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use soulbox_outgoing::{ChunkThrottle, Flood, is_flood, watch_pooled};
use soulbox_types::causes;
use tokio::time::timeout;

use super::{
    connect::Connector,
    policy::{Policy, Scheme, Target},
};
use crate::{
    Error, ImageConfig, Result, config::Timeouts, manifest::malformed, reference::DOCKER_HUB,
};

const MAX_REDIRECTS: usize = 5;
const IDLE_CONNECTIONS: Duration = Duration::from_secs(20);
const USER_AGENT: &str = concat!("soulbox/", env!("CARGO_PKG_VERSION"));
/// Where Docker Hub's registry really is.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
    connector: Connector,
    policy: Arc<Policy>,
    pub(crate) timeouts: Timeouts,
    /// What registries that may speak either were found to speak.
    schemes: Arc<Mutex<HashMap<String, Scheme>>>,
}

/// A request to a registry.
#[derive(Debug, Clone)]
pub(crate) struct RegistryRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl RegistryRequest {
    pub(crate) fn get(uri: Uri) -> Self {
        Self {
            method: Method::GET,
            uri,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }
}

/// A response whose body is still to come.
#[derive(Debug)]
pub(crate) struct RegistryResponse {
    pub(crate) host: String,
    pub(crate) response: Response<Incoming>,
    idle: Duration,
    throttle: ChunkThrottle,
}

impl Http {
    pub(crate) fn new(config: &ImageConfig, policy: Arc<Policy>) -> Self {
        let connector = Connector::new(config, Arc::clone(&policy));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTIONS)
            .pool_max_idle_per_host(config.parallel.max(1))
            .build(connector.clone());
        Self {
            client,
            connector,
            policy,
            timeouts: config.timeouts,
            schemes: Arc::default(),
        }
    }

    /// The base address of a registry.
    pub(crate) async fn base(&self, registry: &str) -> Result<Uri> {
        let authority = match registry {
            DOCKER_HUB => DOCKER_HUB_HOST,
            other => other,
        };
        let with = |scheme: Scheme| -> Result<Uri> {
            let text = format!("{scheme}://{authority}");
            text.parse().map_err(|_| Error::Reference {
                reference: registry.to_owned(),
                reason: "this is not a host".to_owned(),
            })
        };
        let secure = with(Scheme::Https)?;
        let Some(target) = Target::of(&secure) else {
            return Ok(secure);
        };
        if !self.policy.allows_http(&target) {
            return Ok(secure);
        }
        if let Some(scheme) = self.policy.scheme(&target) {
            return with(scheme);
        }
        if let Some(scheme) = self.schemes.lock().get(authority) {
            return with(*scheme);
        }
        let scheme = if self.connector.speaks_tls(&target).await? {
            Scheme::Https
        } else {
            Scheme::Http
        };
        self.schemes.lock().insert(authority.to_owned(), scheme);
        with(scheme)
    }

    /// Follows redirects; who is elsewhere does not get the authorization.
    pub(crate) async fn send(&self, mut request: RegistryRequest) -> Result<RegistryResponse> {
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.once(&request).await?;
            let status = answer.response.status();
            let Some(location) = answer.response.headers().get(header::LOCATION) else {
                return Ok(answer);
            };
            if !status.is_redirection() || request.method != Method::GET {
                return Ok(answer);
            }
            let next = resolve(&request.uri, location).map_err(|reason| Error::Redirect {
                host: answer.host.clone(),
                reason: reason.to_owned(),
            })?;
            if Target::of(&next) != Target::of(&request.uri) {
                request.headers.remove(header::AUTHORIZATION);
            }
            request.uri = next;
        }
        Err(Error::Redirect {
            host: shown(&request.uri),
            reason: format!("there were more than {MAX_REDIRECTS} in a row"),
        })
    }

    async fn once(&self, wanted: &RegistryRequest) -> Result<RegistryResponse> {
        let host = shown(&wanted.uri);
        let broken = |cause: String| Error::Http {
            host: host.clone(),
            cause,
        };
        let mut request = Request::builder()
            .method(wanted.method.clone())
            .uri(wanted.uri.clone())
            .body(Full::new(wanted.body.clone()))
            .map_err(|error| broken(error.to_string()))?;
        *request.headers_mut() = wanted.headers.clone();
        let agent = HeaderValue::from_static(USER_AGENT);
        request.headers_mut().insert(header::USER_AGENT, agent);
        watch_pooled(&mut request);
        // Connecting has limits of its own, in three steps.
        let limit = self.timeouts.idle + 3 * self.timeouts.connect;
        match timeout(limit, self.client.request(request)).await {
            Err(_) => Err(Error::Silent {
                host,
                seconds: limit.as_secs(),
            }),
            Ok(Ok(response)) => Ok(RegistryResponse {
                host,
                response,
                idle: self.timeouts.idle,
                throttle: ChunkThrottle::default(),
            }),
            Ok(Err(error)) if is_flood(&error) => Err(malformed(&host, Flood.to_string())),
            Ok(Err(error)) => Err(unwrap(&error, broken)),
        }
    }
}

/// hyper wraps what our own connector said.
fn unwrap(
    error: &hyper_util::client::legacy::Error,
    otherwise: impl FnOnce(String) -> Error,
) -> Error {
    if let Some(ours) = causes(error).find_map(|cause| cause.downcast_ref::<Error>()) {
        return again(ours);
    }
    let deepest = causes(error).last().map(ToString::to_string);
    otherwise(deepest.unwrap_or_default())
}

/// What a connector can say, once more: errors cannot be cloned.
fn again(error: &Error) -> Error {
    match error {
        Error::PrivateAddress { host } => Error::PrivateAddress { host: host.clone() },
        Error::NoPublicAddress { host } => Error::NoPublicAddress { host: host.clone() },
        Error::PlainHttp { host } => Error::PlainHttp { host: host.clone() },
        Error::Connect { host, cause } => Error::Connect {
            host: host.clone(),
            cause: cause.clone(),
        },
        Error::Tls { host, cause } => Error::Tls {
            host: host.clone(),
            cause: cause.clone(),
        },
        Error::Redirect { host, reason } => Error::Redirect {
            host: host.clone(),
            reason: reason.clone(),
        },
        Error::Roots(error) => Error::Roots(std::io::Error::other(error.to_string())),
        other => Error::Connect {
            host: "the registry".to_owned(),
            cause: other.to_string(),
        },
    }
}

impl RegistryResponse {
    /// The next chunk of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.throttle.next().await;
            let frame = timeout(self.idle, self.response.body_mut().frame()).await;
            match frame {
                Err(_) => {
                    return Err(Error::Silent {
                        host: self.host.clone(),
                        seconds: self.idle.as_secs(),
                    });
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    let cause = error
                        .source()
                        .map_or_else(|| error.to_string(), ToString::to_string);
                    return Err(Error::Http {
                        host: self.host.clone(),
                        cause,
                    });
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.throttle.took(data.len());
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// All of the body, if it is not too long.
    pub(crate) async fn whole(&mut self, what: &str, limit: u64) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > limit {
                return Err(Error::TooLarge {
                    what: what.to_owned(),
                    limit,
                });
            }
        }
        Ok(body)
    }
}

/// The host for messages.
pub(crate) fn shown(uri: &Uri) -> String {
    Target::of(uri).map_or_else(|| "the registry".to_owned(), |target| target.shown())
}

/// Where a redirect leads: an absolute address, or one relative to the last.
fn resolve(from: &Uri, location: &HeaderValue) -> Result<Uri, &'static str> {
    const BAD: &str = "the address cannot be read";
    let text = location.to_str().map_err(|_| BAD)?;
    let scheme = from.scheme_str().ok_or(BAD)?;
    let authority = from.authority().ok_or(BAD)?;
    let absolute = if text.contains("://") && !text.starts_with('/') {
        text.to_owned()
    } else if let Some(rest) = text.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if text.starts_with('/') {
        format!("{scheme}://{authority}{text}")
    } else {
        let folder = from
            .path()
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{text}")
    };
    let uri: Uri = absolute.parse().map_err(|_| BAD)?;
    match Target::of(&uri) {
        Some(_) => Ok(uri),
        None => Err("the address is neither http nor https"),
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(location: &str) -> Option<String> {
        let from: Uri = "https://a.example:444/v2/x/blobs/y?z".parse().unwrap();
        let location = HeaderValue::from_str(location).unwrap();
        resolve(&from, &location).ok().map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_may_be_absolute_or_relative() {
        let cases = [
            ("https://b.example/c?d", "https://b.example/c?d"),
            ("//b.example/c", "https://b.example/c"),
            ("/c?d=http://e", "https://a.example:444/c?d=http://e"),
            ("c", "https://a.example:444/v2/x/blobs/c"),
        ];
        for (location, expected) in cases {
            assert_eq!(redirect(location).as_deref(), Some(expected));
        }
    }

    #[test]
    fn redirects_elsewhere_than_http_are_refused() {
        for location in [
            "file:///etc/passwd",
            "https://u:p@b.example/",
            "gopher://x/",
        ] {
            assert_eq!(redirect(location), None, "{location}");
        }
    }
}
