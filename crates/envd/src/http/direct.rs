//! Large files, moved between socket and page cache by the kernel.
//!
//! hyper moves what is in memory: each byte would be copied out of the kernel and back into it,
//! and change threads between. So it is asked to give the connection back as soon as it is known
//! that a large file is to come or go; what is left is the body, the head of the answer and the end.

use std::{
    cell::{Cell, RefCell},
    future::pending,
    io,
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::{io::Interest, net::TcpStream};

use super::{
    answer_upload,
    body::Body,
    socket::{SocketBody, close_gracefully, writable, write_all},
};
use crate::{
    files::{
        source::{FilePart, STALLED},
        threads::blocking,
    },
    state::Envd,
    time,
};

/// A smaller upload is received as any request's body.
const LARGE: u64 = 256 << 10;
/// Sent in one go by a file thread, as long as the socket takes it.
const STEP: usize = 1 << 20;

/// Of one connection: what it was taken from hyper for.
#[derive(Default, Clone)]
pub(super) struct Direct {
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    asked: Cell<bool>,
    taken: RefCell<Option<DirectTransfer>>,
}

/// Whether one request may be answered directly.
pub(super) struct DirectPermit {
    /// `None`: hyper answers.
    direct: Option<Rc<Shared>>,
}

pub(super) enum DirectTransfer {
    Download {
        head: Vec<u8>,
        part: FilePart,
    },
    Upload {
        request: Box<Request<Incoming>>,
        length: u64,
    },
}

impl Direct {
    /// Only the first request of a connection is answered directly: of an earlier one there may
    /// be something left to write.
    pub(super) fn permit_for<B>(&self, request: &Request<B>) -> DirectPermit {
        let first = !self.shared.asked.replace(true);
        let plain = request.version() == Version::HTTP_11 && request.uri().path() == "/files";
        DirectPermit {
            direct: (first && plain).then(|| Rc::clone(&self.shared)),
        }
    }

    /// The connection is ours when there is something.
    pub(super) fn taken(&self) -> Option<DirectTransfer> {
        self.shared.taken.borrow_mut().take()
    }
}

impl DirectPermit {
    /// Gives the request back for hyper's connection, or keeps it for ever: then the connection
    /// is taken.
    pub(super) async fn take_request(&self, request: Request<Incoming>) -> Request<Incoming> {
        let large = request
            .body()
            .size_hint()
            .exact()
            .filter(|length| *length >= LARGE);
        let waits = request.headers().contains_key(header::EXPECT);
        match (&self.direct, large) {
            (Some(direct), Some(length)) if request.method() == Method::POST && !waits => {
                let request = Box::new(request);
                direct
                    .take(DirectTransfer::Upload { request, length })
                    .await
            }
            _ => request,
        }
    }

    /// The same with the response.
    pub(super) async fn take_response(self, mut response: Response<Body>) -> Response<Body> {
        let part = match response.body_mut() {
            Body::File(part) if self.direct.is_some() => part.take(),
            _ => None,
        };
        match (self.direct, part) {
            (Some(direct), Some(part)) => {
                let head = head(&mut response);
                direct.take(DirectTransfer::Download { head, part }).await
            }
            _ => response,
        }
    }
}

impl Shared {
    async fn take<T>(&self, taken: DirectTransfer) -> T {
        *self.taken.borrow_mut() = Some(taken);
        pending().await
    }
}

impl DirectTransfer {
    /// `read_buffer`: what hyper has read of the connection and not used.
    pub(super) async fn run(
        self,
        envd: &Rc<Envd>,
        socket: TcpStream,
        read_buffer: Bytes,
    ) -> io::Result<()> {
        let socket = Arc::new(socket);
        match self {
            Self::Download { head, part } => {
                write_all(&socket, &head, STALLED).await?;
                send(part, &socket).await?;
            }
            Self::Upload { request, length } => {
                let (parts, incoming) = request.into_parts();
                let body =
                    SocketBody::new(Arc::clone(&socket), length, incoming, read_buffer).await;
                let mut response = answer_upload(envd, parts, body).await;
                let mut answer = head(&mut response);
                if let Body::Full(Some(bytes)) = response.body() {
                    answer.extend_from_slice(bytes);
                }
                write_all(&socket, &answer, STALLED).await?;
            }
        }
        close_gracefully(&socket).await;
        Ok(())
    }
}

fn head(response: &mut Response<Body>) -> Vec<u8> {
    let (status, length) = (response.status(), response.body().size_hint().exact());
    let headers = response.headers_mut();
    if let Ok(now) = HeaderValue::from_str(&time::http_date(time::unix_seconds())) {
        headers.insert(header::DATE, now);
    }
    if let (None, Some(length)) = (headers.get(header::CONTENT_LENGTH), length) {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in &*headers {
        for text in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(text);
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}

async fn send(mut part: FilePart, socket: &Arc<TcpStream>) -> io::Result<()> {
    while part.length() > 0 {
        writable(socket, STALLED).await?;
        let to = Arc::clone(socket);
        let sent;
        (part, sent) = blocking(move || {
            let sent = send_until_full(&mut part, &to);
            (part, sent)
        })
        .await?;
        sent?;
    }
    Ok(())
}

/// Until a step is done, or the socket takes no more for now.
fn send_until_full(part: &mut FilePart, socket: &TcpStream) -> io::Result<()> {
    let mut left = STEP;
    while left > 0 && part.length() > 0 {
        match socket.try_io(Interest::WRITABLE, || part.send_some(socket, left)) {
            Ok(sent) => left = left.saturating_sub(sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
