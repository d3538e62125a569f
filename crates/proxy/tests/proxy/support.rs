//! A node in memory whose ports are real listeners on loopback, and a listener in front.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use soulbox_proxy::{ClientConnection, Proxy, ProxyConfig, asks_for_port};
use soulbox_runtime::{Node, Waker};
use soulbox_testkit::MemoryNode;
use soulbox_types::{EndReason, Lifecycle, SandboxId, SandboxSpec, Secret};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const ID: &str = "itest";
pub(crate) const TOKEN: &str = "token-of-itest";

pub(crate) fn id() -> SandboxId {
    ID.parse().unwrap()
}

fn node_with_one_sandbox() -> Arc<MemoryNode> {
    let node = MemoryNode::default();
    let plain = soulbox_testkit::spec();
    node.add(SandboxSpec {
        id: id(),
        lifecycle: Lifecycle {
            auto_resume: true,
            ..plain.lifecycle
        },
        access_token: Some(Secret::new(TOKEN)),
        ..plain
    });
    Arc::new(node)
}

/// A sandbox, the proxy before it, and the address where the proxy listens.
pub(crate) struct World {
    pub(crate) node: Arc<MemoryNode>,
    pub(crate) proxy: Proxy,
    pub(crate) address: SocketAddr,
}

impl World {
    pub(crate) fn kill(&self) {
        self.node.end(&id(), EndReason::Killed, "");
    }
}

pub(crate) async fn world() -> World {
    world_with(ProxyConfig::new("sbx.localhost")).await
}

pub(crate) async fn world_with(config: ProxyConfig) -> World {
    let node = node_with_one_sandbox();
    let proxy = Proxy::new(Arc::clone(&node) as Arc<dyn Node>, config);
    world_of(node, proxy).await
}

/// With this waker.
pub(crate) async fn world_with_waker(waker: Arc<dyn Waker>) -> World {
    let node = node_with_one_sandbox();
    let config = ProxyConfig::new("sbx.localhost");
    let proxy = Proxy::with_waker(Arc::clone(&node) as Arc<dyn Node>, Some(waker), config);
    world_of(node, proxy).await
}

async fn world_of(node: Arc<MemoryNode>, proxy: Proxy) -> World {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = proxy.clone();
    tokio::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            let proxy = serving.clone();
            let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                let proxy = proxy.clone();
                request.extensions_mut().insert(ClientConnection {
                    address: peer,
                    tls: false,
                });
                async move {
                    // As the API's route does it for the owner.
                    let port = request.uri().path().strip_prefix("/owned-port/");
                    let answer = if let Some(port) = port.and_then(|port| port.parse().ok()) {
                        assert!(asks_for_port(request.version(), request.headers()));
                        proxy.tunnel(id(), port, request).await
                    } else {
                        assert!(proxy.claims(&request), "this request is not for the proxy");
                        proxy.handle(request).await
                    };
                    Ok::<_, std::convert::Infallible>(answer)
                }
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(
                    builder
                        .serve_connection_with_upgrades(TokioIo::new(socket), service)
                        .await,
                );
            });
        }
    });
    World {
        node,
        proxy,
        address,
    }
}

impl World {
    /// A server inside, on `port`, whose connections are handled by `serve`.
    pub(crate) async fn server<F>(&self, port: u16, serve: impl Fn(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.node.open(port, listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket));
            }
        });
    }

    /// A server inside that reads a request's head, writes `answer` and closes.
    pub(crate) async fn canned(&self, port: u16, answer: impl Into<Vec<u8>>) {
        let answer = Arc::new(answer.into());
        self.server(port, move |mut socket| {
            let answer = Arc::clone(&answer);
            async move {
                read_head(&mut socket).await;
                drop(socket.write_all(&answer).await);
            }
        })
        .await;
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request as written and reads until the proxy closes.
    pub(crate) async fn raw(&self, request: &str) -> String {
        let mut socket = self.connect().await;
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        within(socket.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) async fn get(&self, host: &str, path: &str) -> String {
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
        .await
    }
}

/// Reads up to and including the empty line.
pub(crate) async fn read_head(socket: &mut TcpStream) -> String {
    read_until(socket, "\r\n\r\n").await
}

pub(crate) async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        match within(socket.read_u8()).await {
            Ok(byte) => text.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Nothing in these tests may take this long.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .expect("in time")
}
