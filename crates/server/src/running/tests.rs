//! The whole path of a request, over real sockets and real TLS, to a node in memory.

use axum::{http::HeaderMap, routing::get};
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use soulbox_proxy::StreamLimits;
use soulbox_runtime::Node;
use soulbox_testkit::MemoryNode;
use soulbox_types::{EndReason, SandboxSpec};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
};
use tokio_rustls::TlsConnector;

mod connection_limits;
mod reuse;
mod write_timeout;

use super::*;
use crate::{listen::bind, tls};

const ID: &str = "itest";

struct World {
    node: Arc<MemoryNode>,
    addresses: Addresses,
    stop: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl World {
    fn kill(&self) {
        self.node.end(&ID.parse().unwrap(), EndReason::Killed, "");
    }
}

fn world() -> World {
    world_with(limits(1000))
}

/// One client may have all.
fn limits(max_open: usize) -> ConnectionLimits {
    ConnectionLimits {
        max_open,
        max_per_client: usize::MAX,
        max_descriptors: u64::MAX,
        max_pending: 16,
        streams: StreamLimits::default(),
    }
}

fn world_with(limits: ConnectionLimits) -> World {
    let dir = tempfile::tempdir().unwrap();
    let source = tls::Source::Local {
        dir: dir.path().to_owned(),
        domain: "sbx.localhost".to_owned(),
        addresses: Vec::new(),
    };
    let any = "127.0.0.1:0".parse().unwrap();
    let listeners = Listeners {
        http: bind(any, "--listen").unwrap(),
        https: Some((bind(any, "--https").unwrap(), Tls::load(source).unwrap())),
        admin: Some(bind(any, "--admin").unwrap()),
        names: None,
        challenges: None,
    };
    let addresses = listeners.addresses().unwrap();
    let node = Arc::new(MemoryNode::default());
    node.add(SandboxSpec {
        id: ID.parse().unwrap(),
        ..soulbox_testkit::spec()
    });
    let api = Router::new()
        .route("/health", get(async || "healthy"))
        .route(
            "/refuses",
            axum::routing::post(async || http::StatusCode::UNAUTHORIZED),
        )
        .route(
            "/host",
            get(async |headers: HeaderMap| headers["host"].to_str().unwrap().to_owned()),
        );
    let parts = Parts {
        waker: None,
        node: Arc::clone(&node) as Arc<dyn Node>,
        api,
        slots: Some(Arc::new(|| crate::metrics::Slots {
            ready: 3,
            used: 1,
            names: soulbox_net::NameStats {
                asked: 7,
                slowed: 2,
                dropped: 1,
            },
            by_name: soulbox_net::ByNameStats {
                open: 4,
                passed: 6,
                refused: 5,
            },
        })),
        busy: Some(Arc::new(crate::metrics::Busy::default)),
        operations: None,
        sampling: None,
        ready: None,
        operator: None,
        limits,
        stop: Box::new(|| {}),
        close: Box::pin(async {}),
    };
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(async move {
        run(listeners, "sbx.localhost", parts, async {
            drop(stopped.await);
        })
        .await;
    });
    World {
        node,
        addresses,
        stop,
        server,
        dir,
    }
}

impl World {
    /// A server inside that answers each connection with these bytes and waits. Returns a
    /// channel with a message for each request that reached it.
    async fn inside(&self, port: u16, answer: &'static str) -> mpsc::UnboundedReceiver<()> {
        let (reached, requests) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.node.open(port, listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let reached = reached.clone();
                tokio::spawn(async move {
                    drop(socket.read(&mut [0; 4096]).await);
                    let _asked = reached.send(());
                    drop(socket.write_all(answer.as_bytes()).await);
                    std::future::pending::<()>().await;
                });
            }
        });
        requests
    }

    async fn tls(
        &self,
        name: &str,
        protocols: &[&[u8]],
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.dir.path().join("ca.pem")).unwrap();
        roots.add(ca).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        let socket = TcpStream::connect(self.addresses.https.unwrap())
            .await
            .unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await
            .unwrap()
    }

    /// Over TLS and HTTP/2: status and body.
    async fn get2(&self, host: &str, path: &str) -> (u16, String) {
        let stream = self.tls(host, &[b"h2"]).await;
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
        tokio::spawn(connection);
        let port = self.addresses.https.unwrap().port();
        let request = Request::get(format!("https://{host}:{port}{path}"))
            .version(Version::HTTP_2)
            .body(Empty::<Bytes>::new())
            .unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        let status = response.status().as_u16();
        let body = within(response.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

async fn raw<S: AsyncReadExt + AsyncWriteExt + Unpin>(
    mut stream: S,
    host: &str,
    path: &str,
) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    drop(within(stream.read_to_end(&mut answer)).await);
    String::from_utf8_lossy(&answer).into_owned()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .expect("in time")
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ninside";

#[tokio::test]
async fn one_listener_serves_the_control_plane_and_the_sandboxes() {
    let world = world();
    world.inside(8080, OK).await;
    let plain = || TcpStream::connect(world.addresses.http);
    let answer = raw(plain().await.unwrap(), "localhost:3000", "/health").await;
    assert!(answer.ends_with("healthy"), "{answer}");
    let answer = raw(
        plain().await.unwrap(),
        &format!("8080-{ID}.sbx.localhost"),
        "/health",
    )
    .await;
    assert!(answer.ends_with("inside"), "{answer}");
}

#[tokio::test]
async fn over_tls_http2_and_http1_reach_both() {
    let world = world();
    world.inside(8080, OK).await;
    let sandbox = format!("8080-{ID}.sbx.localhost");
    assert_eq!(
        world.get2("api.sbx.localhost", "/health").await,
        (200, "healthy".into())
    );
    assert_eq!(world.get2(&sandbox, "/").await, (200, "inside".into()));
    let (status, body) = world.get2("8080-inobody.sbx.localhost", "/").await;
    assert_eq!(status, 502);
    assert!(body.contains("The sandbox was not found"), "{body}");
    let stream = world.tls(&sandbox, &[b"http/1.1"]).await;
    assert!(raw(stream, &sandbox, "/").await.ends_with("inside"));
}

/// Clients build `http://` out of a host name with a port (openai-agents, agno).
#[tokio::test]
async fn plain_http_on_the_port_for_tls_reaches_sandboxes_and_is_redirected_to_the_api() {
    let world = world();
    world.inside(8080, OK).await;
    let address = world.addresses.https.unwrap();
    let plain = || TcpStream::connect(address);
    let sandbox = format!("8080-{ID}.sbx.localhost:{}", address.port());
    let answer = raw(plain().await.unwrap(), &sandbox, "/").await;
    assert!(answer.ends_with("inside"), "{answer}");

    // A key that works without TLS would never be noticed, nor would envd's token.
    for name in ["api".to_owned(), format!("49983-{ID}")] {
        let host = format!("{name}.sbx.localhost:{}", address.port());
        let answer = raw(plain().await.unwrap(), &host, "/health?a=b").await;
        assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
        let location = format!("location: https://{host}/health?a=b\r\n");
        assert!(answer.to_lowercase().contains(&location), "{answer}");
        assert!(answer.contains("speaks HTTPS"), "{answer}");
    }
}

#[tokio::test]
async fn handlers_find_the_host_of_an_http2_request_in_its_header() {
    let world = world();
    let port = world.addresses.https.unwrap().port();
    let (_, host) = world.get2("api.sbx.localhost", "/host").await;
    assert_eq!(host, format!("api.sbx.localhost:{port}"));
}

#[tokio::test]
async fn a_client_that_is_silent_during_the_handshake_does_not_block_others() {
    let world = world();
    let _silent: Vec<TcpStream> = {
        let mut all = Vec::new();
        for _ in 0..32 {
            all.push(
                TcpStream::connect(world.addresses.https.unwrap())
                    .await
                    .unwrap(),
            );
        }
        all
    };
    assert_eq!(
        within(world.get2("api.sbx.localhost", "/health")).await.0,
        200
    );
}

#[tokio::test]
async fn the_metrics_page_shows_sandboxes_requests_and_bytes() {
    let world = world();
    world.inside(8080, OK).await;
    raw(
        TcpStream::connect(world.addresses.http).await.unwrap(),
        "localhost",
        "/health",
    )
    .await;
    let host = format!("8080-{ID}.sbx.localhost");
    raw(
        TcpStream::connect(world.addresses.http).await.unwrap(),
        &host,
        "/?secret=1",
    )
    .await;
    let admin = TcpStream::connect(world.addresses.admin.unwrap())
        .await
        .unwrap();
    let page = raw(admin, "localhost", "/metrics").await;
    for line in [
        r#"soulbox_sandboxes{state="running"} 1"#,
        r#"soulbox_requests_total{route="health",method="GET",status="200"} 1"#,
        r#"soulbox_requests_total{route="proxy",method="GET",status="200"} 1"#,
        r#"soulbox_network_slots{state="ready"} 3"#,
        "soulbox_proxy_bytes_from_sandboxes_total ",
        "soulbox_process_resident_memory_bytes ",
        "# TYPE soulbox_requests_total counter",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(!page.contains("secret"), "{page}");
    let admin = TcpStream::connect(world.addresses.admin.unwrap())
        .await
        .unwrap();
    let rebound = raw(admin, "evil.example", "/metrics").await;
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
    assert!(!rebound.contains("soulbox_"), "{rebound}");
}

#[tokio::test]
async fn a_stop_lets_a_request_finish_and_is_bounded() {
    let world = world();
    world
        .inside(8080, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstart")
        .await;
    let mut endless = TcpStream::connect(world.addresses.http).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n\r\n");
    endless.write_all(request.as_bytes()).await.unwrap();
    within(endless.readable()).await.unwrap();
    let idle = TcpStream::connect(world.addresses.http).await.unwrap();
    world.stop.send(()).unwrap();
    within(world.server).await.unwrap();
    assert!(
        TcpStream::connect(world.addresses.http).await.is_err(),
        "still listening"
    );
    let mut rest = Vec::new();
    drop(within(endless.read_to_end(&mut rest)).await);
    drop(idle);
    assert!(!world.node.list().is_empty(), "sandboxes go on");
}

#[tokio::test]
async fn a_killed_sandbox_resets_the_stream_through_tls_too() {
    let world = world();
    world
        .inside(
            8080,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstart\r\n",
        )
        .await;
    let host = format!("8080-{ID}.sbx.localhost");
    let mut stream = world.tls(&host, &[b"http/1.1"]).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"start\r\n") {
        seen.push(within(stream.read_u8()).await.unwrap());
    }
    world.kill();
    let mut rest = Vec::new();
    drop(within(stream.read_to_end(&mut rest)).await);
    assert!(!rest.windows(5).any(|w| w == b"0\r\n\r\n"), "{rest:?}");
}
