//! Requests for tests, as they come over a connection.

use std::{cell::Cell, convert::Infallible, rc::Rc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, task::LocalSet};

/// What `read` makes of a body that comes in these pieces.
pub(crate) fn receive<T: 'static>(
    pieces: &[&[u8]],
    read: impl AsyncFnOnce(Incoming) -> T + 'static,
) -> T {
    let mut wire = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".to_vec();
    wire.extend(b"transfer-encoding: chunked\r\n\r\n");
    // An empty one would be the end.
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        wire.extend(format!("{:x}\r\n", piece.len()).bytes());
        wire.extend(*piece);
        wire.extend(b"\r\n");
    }
    wire.extend(b"0\r\n\r\n");

    let made = Rc::new(Cell::new(None));
    let (read, told) = (Cell::new(Some(read)), Rc::clone(&made));
    let service = service_fn(move |request: Request<Incoming>| {
        let (read, told) = (read.take().unwrap(), Rc::clone(&told));
        async move {
            told.set(Some(read(request.into_body()).await));
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async move {
        let (ours, mut theirs) = tokio::io::duplex(wire.len() + (4 << 10));
        theirs.write_all(&wire).await.unwrap();
        let connection = http1::Builder::new().serve_connection(TokioIo::new(ours), service);
        connection.await.ok();
    });
    made.take().unwrap()
}
