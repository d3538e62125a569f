//! A registry on loopback that does what a test tells it to.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::image::{TestImage, sha256};

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

pub(crate) enum Reply {
    /// Status, headers, body.
    Full(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Says that all of it comes, sends that many bytes, and hangs up.
    Cut(Vec<u8>, usize),
    /// As `Cut`, but never ends.
    Stall(Vec<u8>, usize),
    /// A body without an end.
    Endless,
}

pub(crate) type Script = dyn Fn(&Seen) -> Option<Reply> + Send + Sync;

#[derive(Default)]
struct Content {
    documents: HashMap<String, Vec<u8>>,
    seen: Vec<Seen>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    content: Arc<Mutex<Content>>,
    task: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// What the script has no reply to is answered as a good registry would.
    pub(crate) async fn start(
        script: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Arc::new(script), None).await
    }

    pub(crate) async fn honest() -> Self {
        Self::start(|_| None).await
    }

    pub(crate) async fn start_with(script: Arc<Script>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let content = Arc::new(Mutex::new(Content::default()));
        let task = tokio::spawn(serve(listener, script, Arc::clone(&content), tls));
        Self {
            address,
            content,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let mut content = self.content.lock().unwrap();
        content.documents.insert(path.to_owned(), bytes.to_vec());
    }

    /// Makes an image available as `<repository>:latest`.
    pub(crate) fn push(&self, repository: &str, image: &TestImage) {
        let at = |rest: String| format!("/v2/{repository}/{rest}");
        self.put(&at("manifests/latest".into()), &image.manifest);
        self.put(
            &at(format!("manifests/{}", image.digest())),
            &image.manifest,
        );
        self.put(
            &at(format!("blobs/{}", sha256(&image.config))),
            &image.config,
        );
        for layer in &image.layers {
            self.put(&at(format!("blobs/{}", layer.digest())), &layer.blob);
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.content.lock().unwrap().seen.clone()
    }

    /// How often something whose path contains this was asked for.
    pub(crate) fn count(&self, part: &str) -> usize {
        let seen = self.seen();
        seen.iter().filter(|seen| seen.path.contains(part)).count()
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn reference(&self, repository: &str) -> String {
        format!("{}/{repository}", self.address)
    }
}

async fn serve(
    listener: TcpListener,
    script: Arc<Script>,
    content: Arc<Mutex<Content>>,
    tls: Option<TlsAcceptor>,
) {
    // Aborted with the set when the server is dropped.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (script, content, tls) = (Arc::clone(&script), Arc::clone(&content), tls.clone());
        connections.spawn(async move {
            match tls {
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, script, content).await;
                    }
                }
                None => connection(stream, script, content).await,
            }
        });
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    script: Arc<Script>,
    content: Arc<Mutex<Content>>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(&request, &script, &content);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    connection
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

type Body = BoxBody<Bytes, io::Error>;

fn answer(
    request: &Request<Incoming>,
    script: &Arc<Script>,
    content: &Mutex<Content>,
) -> Response<Body> {
    let seen = Seen {
        path: request.uri().to_string(),
        headers: request.headers().clone(),
    };
    content.lock().unwrap().seen.push(seen.clone());
    let reply = script(&seen).unwrap_or_else(|| usual(&seen, content));
    match reply {
        Reply::Full(status, headers, bytes) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(body(vec![Ok(bytes)])).unwrap()
        }
        Reply::Cut(bytes, after) => {
            let start = bytes[..after].to_vec();
            let cut = Err(io::Error::other("cut"));
            long(bytes.len(), body(vec![Ok(start), cut]))
        }
        Reply::Stall(bytes, after) => {
            let start = stream::iter([Ok(Frame::data(Bytes::from(bytes[..after].to_vec())))]);
            let forever = start.chain(stream::pending());
            long(bytes.len(), BodyExt::boxed(StreamBody::new(forever)))
        }
        Reply::Endless => {
            let piece = Bytes::from(vec![b' '; 64 << 10]);
            let forever = stream::repeat_with(move || Ok(Frame::data(piece.clone())));
            let forever = forever.then(|frame| async {
                tokio::time::sleep(Duration::from_micros(50)).await;
                frame
            });
            Response::new(BodyExt::boxed(StreamBody::new(forever)))
        }
    }
}

fn long(length: usize, body: Body) -> Response<Body> {
    Response::builder()
        .header("content-length", length)
        .body(body)
        .unwrap()
}

fn body(pieces: Vec<io::Result<Vec<u8>>>) -> Body {
    let frames = pieces
        .into_iter()
        .map(|piece| piece.map(|bytes| Frame::data(Bytes::from(bytes))));
    // A moment between them, so that the first is sent before the second breaks the connection.
    let frames = stream::iter(frames).then(|frame| async {
        if frame.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        frame
    });
    BodyExt::boxed(StreamBody::new(frames))
}

fn usual(seen: &Seen, content: &Mutex<Content>) -> Reply {
    let content = content.lock().unwrap();
    let Some(bytes) = content.documents.get(&seen.path) else {
        let text = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
        return Reply::Full(404, vec![], text.into());
    };
    let from = seen
        .header("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'))
        .and_then(|from| from.parse::<usize>().ok());
    match from {
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            let status = StatusCode::PARTIAL_CONTENT.as_u16();
            Reply::Full(
                status,
                vec![("content-range", range)],
                bytes[from..].to_vec(),
            )
        }
        None => Reply::Full(200, vec![], bytes.clone()),
    }
}
