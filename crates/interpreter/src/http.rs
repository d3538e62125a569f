//! The HTTP server: accepting, routing, cross-origin headers.

pub(crate) mod body;
mod cors;
pub(crate) mod reply;
pub(crate) mod schema;

use std::{cell::Cell, convert::Infallible, rc::Rc, time::Duration};

use http::{Method, Request, Response, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use self::body::Body;
use crate::{memory, routes, server::Server};

/// As long as the reference keeps a connection, so that it is never us who closes first.
const IDLE: Duration = Duration::from_secs(640);
/// Bounds what a connection may hold: headers in, lines out.
const MAX_BUFFER: usize = 64 << 10;
/// Programs in the sandbox can connect too, and each connection costs memory.
const MAX_CONNECTIONS: usize = 1024;

pub(crate) async fn serve(server: Rc<Server>, listener: TcpListener) {
    let open = Rc::new(Cell::new(0));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors or memory: give others a moment to release some.
                eprintln!("soulbox-interpreter: cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(counted) = Counted::new(&open) else {
            continue;
        };
        let _unsupported = stream.set_nodelay(true);
        let server = Rc::clone(&server);
        tokio::task::spawn_local(async move {
            let _counted = counted;
            let service = service_fn(|request| {
                let server = Rc::clone(&server);
                async move { Ok::<_, Infallible>(handle(server, request).await) }
            });
            let _client_gone = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE)
                .max_buf_size(MAX_BUFFER)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            memory::trim();
        });
    }
}

/// Counts a connection while it lives, however it ends.
struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn new(count: &Rc<Cell<usize>>) -> Option<Self> {
        if count.get() >= MAX_CONNECTIONS {
            return None;
        }
        count.set(count.get() + 1);
        Some(Self(Rc::clone(count)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn handle(server: Rc<Server>, request: Request<Incoming>) -> Response<Body> {
    let cross_origin = request.headers().contains_key(header::ORIGIN);
    let mut response = if cors::is_preflight(&request) {
        cors::preflight(&request)
    } else {
        route(server, request).await
    };
    if cross_origin {
        cors::expose(response.headers_mut());
    }
    response
}

async fn route(server: Rc<Server>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let answer = match (request.method(), parts.as_slice()) {
        (&Method::GET, ["health"]) => Ok(reply::json("OK")),
        (&Method::POST, ["execute"]) => routes::execute::handle(server, request).await,
        (&Method::GET, ["contexts"]) => Ok(routes::contexts::list(&server)),
        (&Method::POST, ["contexts"]) => routes::contexts::create(&server, request).await,
        (&Method::DELETE, ["contexts", id]) => routes::contexts::remove(&server, id),
        (&Method::POST, ["contexts", id, "restart"]) => {
            routes::contexts::restart(&server, id).await
        }
        (
            _,
            ["health" | "execute" | "contexts"]
            | ["contexts", _]
            | ["contexts", _, "restart"]
            | ["v1", "execute" | "languages"],
        ) => Err(reply::Failure::method_not_allowed()),
        _ => Err(reply::Failure::no_route()),
    };
    answer.unwrap_or_else(reply::Failure::into_response)
}
