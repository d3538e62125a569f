//! `GET /soulbox/tree?path=`: a file or directory as a tar.

use std::{
    io::{self, Write},
    path::Path,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::{runtime::Handle, sync::mpsc};

use super::pack::{Packer, Top};
use crate::{
    http::{
        body::{Body, BodyError},
        reply::Failure,
    },
    state::Envd,
};

const CHUNK: usize = 64 << 10;
const WAITING: usize = 2;
/// A client that takes nothing for this long is cut.
const STALLED: Duration = Duration::from_mins(5);

type Frame = Result<Bytes, BodyError>;

pub(crate) async fn handle(
    envd: &Rc<Envd>,
    request: &Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let query = request.uri().query().unwrap_or_default();
    let path = form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "path")
        .map(|(_, path)| path.into_owned())
        .filter(|path| path.starts_with('/') && !path.contains('\0'))
        .ok_or_else(|| Failure::bad_request("path must be absolute"))?;
    let top = Top::open(Path::new(&path)).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::new(
            StatusCode::NOT_FOUND,
            format!("path '{path}' does not exist"),
        ),
        io::ErrorKind::InvalidInput => {
            Failure::bad_request(format!("path '{path}' is neither a file nor a directory"))
        }
        _ => Failure::io(format!("error opening '{path}'"), &e),
    })?;

    let (frames, receiver) = mpsc::channel(WAITING);
    let runtime = Handle::current();
    let _result_is_in_the_body = envd
        .transfers
        .run(move |_| {
            let out = Chunks {
                frames,
                runtime,
                buffer: Vec::new(),
            };
            out.fill(top);
        })
        .await?;
    let mut response = Response::new(Body::stream(receiver));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-tar"),
    );
    Ok(response)
}

/// From the thread that reads files to the event loop that sends them.
struct Chunks {
    frames: mpsc::Sender<Frame>,
    runtime: Handle,
    buffer: Vec<u8>,
}

impl Chunks {
    fn fill(mut self, top: Top) {
        let packed = Packer::new(&mut self).pack(top).and_then(|()| self.flush());
        if let Err(error) = packed {
            // Aborts the response: a short archive must not look complete.
            let _gone = self.send(Err(error.into()));
        }
    }

    fn send(&self, frame: Frame) -> io::Result<()> {
        let sent = async { tokio::time::timeout(STALLED, self.frames.send(frame)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let take = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..take]);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.buffer);
        self.send(Ok(chunk.into()))
    }
}
