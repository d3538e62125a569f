//! The HTTP server: accepting, routing, errors, CORS.

pub(crate) mod body;
mod connections;
pub(crate) mod cors;
mod direct;
pub(crate) mod reply;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod socket;

use std::{convert::Infallible, future::poll_fn, pin::Pin, rc::Rc, task::Poll, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use hyper::{
    body::Incoming,
    server::conn::http1::{self, Parts},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use self::{
    body::Body,
    connections::{Connections, Open},
    direct::Direct,
    reply::Failure,
    socket::SocketBody,
};
use crate::{
    auth::{self, Token},
    control,
    files::{self, upload::body::UploadBody},
    memory, rpc,
    state::Envd,
    transfer,
};

/// Longer than any proxy in front waits, so that it is never us who closes first.
const IDLE: Duration = Duration::from_secs(640);
/// Bounds what a connection may hold: headers in, frames out.
const MAX_BUFFER: usize = 64 << 10;

/// Everything below it is between the node and us.
const OWN_PREFIX: &str = "/soulbox/";

/// Accepts for ever. A connection that fails or panics ends alone.
pub(crate) async fn serve(envd: Rc<Envd>, listener: TcpListener) {
    let connections = Rc::new(Connections::default());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors or memory: give others a moment to release some.
                envd.logs
                    .warn("envd", "cannot accept", [("error", error.to_string())]);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(open) = connections.admit() else {
            continue;
        };
        let _unsupported = stream.set_nodelay(true);
        let envd = Rc::clone(&envd);
        tokio::task::spawn_local(async move {
            tokio::select! {
                () = serve_connection(&envd, stream, &open) => {}
                () = open.replaced() => {}
            }
            memory::trim_later(&envd);
        });
    }
}

/// Answers what comes over one connection.
async fn serve_connection(envd: &Rc<Envd>, stream: TcpStream, open: &Open) {
    let direct = Direct::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (envd, direct) = (Rc::clone(envd), direct.clone());
        open.has_asked();
        async move {
            let permit = direct.permit_for(&request);
            let request = permit.take_request(request).await;
            let response = handle(envd, request).await;
            Ok::<_, Infallible>(permit.take_response(response).await)
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let taken = poll_fn(|cx| {
        let ended = Pin::new(&mut connection).poll(cx).map(|_client_gone| None);
        match direct.taken() {
            Some(taken) => Poll::Ready(Some(taken)),
            None => ended,
        }
    });
    if let Some(taken) = taken.await {
        let Parts { io, read_buf, .. } = connection.into_parts();
        let _client_gone = taken.run(envd, io.into_inner(), read_buf).await;
    }
}

async fn handle(envd: Rc<Envd>, request: Request<Incoming>) -> Response<Body> {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let result = if cors::is_preflight(&request) {
        Ok(cors::preflight(&request))
    } else {
        route(envd, request).await
    };
    finish(origin.as_ref(), result)
}

/// `POST /files` over a connection that hyper gave back.
async fn answer_upload(envd: &Rc<Envd>, parts: request::Parts, body: SocketBody) -> Response<Body> {
    let origin = parts.headers.get(header::ORIGIN).cloned();
    let result = files::upload::handle(envd, &parts, UploadBody::in_socket(body)).await;
    finish(origin.as_ref(), result)
}

fn finish(origin: Option<&HeaderValue>, result: Result<Response<Body>, Failure>) -> Response<Body> {
    let mut response = result.unwrap_or_else(Failure::into_response);
    cors::expose(origin, response.headers_mut());
    response
}

/// Routes that only the node may use. The proxy refuses them too.
fn is_control(path: &str) -> bool {
    const E2B: [&str; 7] = [
        "/init",
        "/freeze",
        "/unfreeze",
        "/collapse",
        "/fsfreeze",
        "/fsthaw",
        "/upgrade",
    ];
    E2B.contains(&path) || path.starts_with(OWN_PREFIX)
}

async fn route(envd: Rc<Envd>, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let path = request.uri().path().to_owned();
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let post = request.method() == Method::POST;

    match path.as_str() {
        "/health" if get => return Ok(control::health()),
        // These two take a signature in place of the token, and check it themselves.
        "/files" if get => return files::download::handle(&envd, &request),
        "/files" if post => {
            let (parts, body) = request.into_parts();
            return files::upload::handle(&envd, &parts, UploadBody::new(body)).await;
        }
        control if is_control(control) => {
            if !auth::is_node(&envd, request.headers()) {
                return Err(Failure::unauthorised("this route is the node's own"));
            }
            return match control {
                "/init" if post => control::init(&envd, request).await,
                "/soulbox/logs" if get => Ok(reply::json(StatusCode::OK, envd.logs.to_json())),
                "/soulbox/copy" if post => transfer::copy(&envd, request).await,
                "/soulbox/tree" if get => transfer::tree(&envd, &request).await,
                "/soulbox/rehearse" if post => control::warm_up(&envd).await,
                "/init" | "/soulbox/logs" | "/soulbox/copy" | "/soulbox/tree"
                | "/soulbox/rehearse" => Err(Failure::method_not_allowed()),
                own if own.starts_with(OWN_PREFIX) => Err(Failure::no_route()),
                _ => Err(Failure::new(
                    StatusCode::NOT_IMPLEMENTED,
                    "not supported yet: the node freezes and replaces sandboxes from outside",
                )),
            };
        }
        _ => {}
    }

    if !matches!(auth::access_token(&envd, request.headers()), Token::Right) {
        return Err(Failure::unauthorised(auth::UNAUTHORISED));
    }
    match path.as_str() {
        "/metrics" if get => Ok(control::metrics(&envd)),
        "/envs" if get => Ok(control::envs(&envd)),
        "/files/compose" if post => files::compose::handle(&envd, request).await,
        "/health" | "/metrics" | "/envs" | "/files" | "/files/compose" => {
            Err(Failure::method_not_allowed())
        }
        rpc if post => match rpc.strip_prefix('/').and_then(|rpc| rpc.split_once('/')) {
            Some(("process.Process", method)) => {
                let method = method.to_owned();
                rpc::process::dispatch(envd, &method, request).await
            }
            Some(("filesystem.Filesystem", method)) => {
                let method = method.to_owned();
                rpc::filesystem::dispatch(envd, &method, request).await
            }
            _ => Err(Failure::no_route()),
        },
        rpc if rpc.starts_with("/process.Process/")
            || rpc.starts_with("/filesystem.Filesystem/") =>
        {
            Err(Failure::method_not_allowed())
        }
        _ => Err(Failure::no_route()),
    }
}
