//! More clients than the limit of connections.

use hyper::client::conn::http2::{self, SendRequest};
use tokio::task::JoinHandle;

use super::*;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstart\r\n";
const UPGRADED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello";

pub(super) fn limited_to(max_open: usize) -> World {
    world_with(limits(max_open))
}

pub(super) async fn connect(world: &World) -> TcpStream {
    within(TcpStream::connect(world.addresses.http))
        .await
        .unwrap()
}

async fn health(world: &World) -> String {
    raw(connect(world).await, "localhost", "/health").await
}

/// Sends a request and leaves the connection open.
async fn kept(world: &World) -> TcpStream {
    let mut client = connect(world).await;
    ask(&mut client).await;
    client
}

async fn ask(client: &mut TcpStream) {
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    until(client, "healthy").await;
}

async fn until(client: &mut (impl AsyncReadExt + Unpin), end: &str) {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        let byte = within(client.read_u8()).await;
        seen.push(
            byte.unwrap_or_else(|error| {
                panic!("{error} after {:?}", String::from_utf8_lossy(&seen))
            }),
        );
    }
}

async fn is_closed(client: &mut TcpStream) {
    assert_eq!(within(client.read(&mut [0])).await.unwrap_or(0), 0);
}

pub(super) async fn page(world: &World) -> String {
    let admin = TcpStream::connect(world.addresses.admin.unwrap());
    raw(admin.await.unwrap(), "localhost", "/metrics").await
}

#[tokio::test]
async fn connections_without_a_request_do_not_keep_others_out() {
    let world = limited_to(8);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(connect(&world).await);
    }
    assert!(health(&world).await.ends_with("healthy"));
    is_closed(&mut silent[0]).await;
    let page = page(&world).await;
    assert!(
        page.contains(r#"soulbox_connections_closed_total{reason="full"} 0"#),
        "{page}"
    );
    let evicted = page
        .lines()
        .find_map(|line| {
            line.strip_prefix(r#"soulbox_connections_closed_total{reason="evicted"} "#)
        })
        .unwrap();
    assert!(evicted.parse::<u32>().unwrap() >= 92, "{page}");
}

#[tokio::test]
async fn connections_without_a_handshake_do_not_keep_others_out() {
    let world = limited_to(8);
    let mut silent = Vec::new();
    for _ in 0..50 {
        let socket = TcpStream::connect(world.addresses.https.unwrap()).await;
        silent.push(socket.unwrap());
    }
    assert_eq!(
        within(world.get2("api.sbx.localhost", "/health")).await.0,
        200
    );
}

#[tokio::test]
async fn the_least_recently_used_idle_connection_is_closed() {
    let world = limited_to(2);
    let mut first = kept(&world).await;
    let mut second = kept(&world).await;
    ask(&mut first).await;
    let _third = kept(&world).await;
    is_closed(&mut second).await;
    ask(&mut first).await;
}

#[tokio::test]
async fn streams_and_tunnels_are_never_cut_for_a_new_connection() {
    let world = limited_to(4);
    world.inside(8080, CHUNKED).await;
    world.inside(8081, UPGRADED).await;
    let host = |port: u16| format!("{port}-{ID}.sbx.localhost");

    let mut stream = connect(&world).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", host(8080));
    stream.write_all(request.as_bytes()).await.unwrap();
    until(&mut stream, "start\r\n").await;

    let mut tunnel = connect(&world).await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        host(8081)
    );
    tunnel.write_all(request.as_bytes()).await.unwrap();
    until(&mut tunnel, "hello").await;

    let io = TokioIo::new(world.tls(&host(8080), &[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("https://{}/", host(8080)))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let mut answer = within(sender.send_request(request)).await.unwrap();
    let frame = within(answer.frame()).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "start");

    for _ in 0..20 {
        assert!(health(&world).await.ends_with("healthy"));
    }
    let page = page(&world).await;
    assert!(
        page.contains(r#"soulbox_connections_open{state="busy"} 3"#),
        "{page}"
    );
    let still_open = async |stream: &mut TcpStream| {
        let more = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0])).await;
        assert!(more.is_err(), "{more:?}");
    };
    still_open(&mut stream).await;
    still_open(&mut tunnel).await;
    let more = tokio::time::timeout(Duration::from_millis(50), answer.frame()).await;
    assert!(more.is_err(), "the stream goes on");
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_with_goaway() {
    let world = limited_to(1);
    let io = TokioIo::new(world.tls("api.sbx.localhost", &[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://api.sbx.localhost/health")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    within(answer.into_body().collect()).await.unwrap();
    assert!(health(&world).await.ends_with("healthy"));
    // Without an error: a client opens another one and goes on.
    within(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_all_of_its_answer() {
    const BIG: usize = 8 << 20;
    let world = limited_to(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = listener.local_addr().unwrap();
    world.node.open(8080, inside);
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        drop(socket.read(&mut [0; 4096]).await);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&vec![b'x'; BIG]).await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut slow = connect(&world).await;
    let request = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n\r\n");
    slow.write_all(request.as_bytes()).await.unwrap();
    until(&mut slow, "\r\n\r\n").await;
    let waiting = tokio::spawn(raw(connect(&world).await, "localhost", "/health"));
    let mut rest = vec![0; BIG];
    within(slow.read_exact(&mut rest)).await.unwrap();
    // Only now there is an idle connection to close.
    assert!(within(waiting).await.unwrap().ends_with("healthy"));
}

/// A server inside that never stops sending, and a client that reads nothing of it.
pub(super) async fn connect_without_reading(world: &World, upgrade: &str) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = listener.local_addr().unwrap();
    world.node.open(8080, inside);
    let head = if upgrade.is_empty() {
        "HTTP/1.1 200 OK\r\n\r\n"
    } else {
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    };
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        drop(socket.read(&mut [0; 4096]).await);
        drop(socket.write_all(head.as_bytes()).await);
        while socket.write_all(&[b'x'; 1 << 14]).await.is_ok() {}
    });
    let mut client = connect(world).await;
    let request = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n{upgrade}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_read_do_not_keep_others_out() {
    let world = limited_to(1);
    for upgrade in ["", "Connection: upgrade\r\nUpgrade: websocket\r\n"] {
        let _client = connect_without_reading(&world, upgrade).await;
        let stalled = r#"soulbox_connections_open{state="stalled"} 1"#;
        while !page(&world).await.contains(stalled) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert!(health(&world).await.ends_with("healthy"));
    }
}

/// Over HTTP/2, by a client that takes no byte of any body.
pub(super) async fn connect_without_window(
    world: &World,
) -> (SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(connect(world).await))
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

#[tokio::test(start_paused = true)]
async fn clients_that_give_no_window_do_not_keep_others_out() {
    let world = limited_to(1);
    let (mut sender, connection) = connect_without_window(&world).await;
    let request = Request::get("http://localhost/health")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let _answer = within(sender.send_request(request)).await.unwrap();
    assert!(page(&world).await.contains(r#"{state="stalled"} 1"#));
    is_closed(&mut connect(&world).await).await;
    assert!(!connection.is_finished());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(health(&world).await.ends_with("healthy"));
}

#[tokio::test]
async fn clients_that_give_no_window_and_keep_sending_requests_do_not_keep_others_out() {
    let world = limited_to(1);
    let (mut sender, _connection) = connect_without_window(&world).await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let request = Request::get("http://localhost/health")
            .body(Empty::<Bytes>::new())
            .unwrap();
        answers.push(within(sender.send_request(request)).await.unwrap());
        assert!(page(&world).await.contains(r#"{state="stalled"} 1"#));
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
    }
    assert!(health(&world).await.ends_with("healthy"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_is_not_cut_for_a_new_connection() {
    let world = limited_to(1);
    world.inside(8080, CHUNKED).await;
    let mut quiet = connect(&world).await;
    let request = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n\r\n");
    quiet.write_all(request.as_bytes()).await.unwrap();
    until(&mut quiet, "start\r\n").await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    is_closed(&mut connect(&world).await).await;
    let more = tokio::time::timeout(Duration::from_secs(1), quiet.read(&mut [0])).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn new_connections_of_a_client_at_its_limit_do_not_delay_others() {
    let world = world_with(ConnectionLimits {
        max_per_client: 3,
        ..limits(4)
    });
    world.inside(8080, CHUNKED).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&world).await;
        let request = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        until(&mut stream, "start\r\n").await;
        streams.push(stream);
    }
    let elsewhere = async || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        within(socket.connect(world.addresses.http)).await.unwrap()
    };
    let mut pooled = elsewhere().await;
    ask(&mut pooled).await;
    for _ in 0..50 {
        streams.push(connect(&world).await);
    }
    let answer = raw(elsewhere().await, "localhost", "/health");
    let answer = tokio::time::timeout(Duration::from_secs(3), answer).await;
    assert!(answer.unwrap().ends_with("healthy"));
}

#[tokio::test]
async fn streams_of_one_connection_to_one_sandbox_leave_descriptors_for_others() {
    let world = world_with(ConnectionLimits {
        streams: StreamLimits {
            max_open: 32,
            max_descriptors: u64::MAX,
        },
        ..limits(1000)
    });
    let mut reached = world.inside(8080, "").await;
    let host = format!("8080-{ID}.sbx.localhost");
    let io = TokioIo::new(world.tls(&host, &[b"h2"]).await);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let request = Request::get(format!("https://{host}/"))
            .body(Empty::<Bytes>::new())
            .unwrap();
        let mut sender = sender.clone();
        answers.spawn(async move { sender.send_request(request).await });
    }
    for _ in 0..8 {
        within(reached.recv()).await.unwrap();
    }
    for _ in 0..92 {
        let answer = within(answers.join_next()).await.unwrap();
        assert_eq!(answer.unwrap().unwrap().status(), 429);
    }
    assert!(reached.try_recv().is_err(), "no more streams were opened");
    assert!(health(&world).await.ends_with("healthy"));
    drop(sender);
    answers.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_short_of_descriptors_refuses_streams_with_retry_after() {
    let world = world_with(ConnectionLimits {
        streams: StreamLimits {
            max_open: 1000,
            max_descriptors: 0,
        },
        ..limits(1000)
    });
    world.inside(8080, CHUNKED).await;
    let host = format!("8080-{ID}.sbx.localhost");
    let answer = raw(connect(&world).await, &host, "/").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    assert!(health(&world).await.ends_with("healthy"));
    let page = page(&world).await;
    assert!(
        page.contains("soulbox_proxy_streams_refused_total 1"),
        "{page}"
    );
}

#[tokio::test]
async fn nearly_all_descriptors_in_use_is_like_the_limit_of_connections() {
    let world = world_with(ConnectionLimits {
        max_descriptors: 0,
        ..limits(1000)
    });
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(connect(&world).await);
    }
    assert!(health(&world).await.ends_with("healthy"));
    is_closed(&mut silent[0]).await;
    ask(silent.last_mut().unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_first_request_has_to_come_soon_and_the_next_one_has_time() {
    let world = limited_to(8);
    let mut silent = connect(&world).await;
    let mut trickling = connect(&world).await;
    trickling.write_all(b"GET /health HTT").await.unwrap();
    let mut pooled = kept(&world).await;
    let started = tokio::time::Instant::now();
    for client in [&mut silent, &mut trickling] {
        assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
        assert!(started.elapsed() < Duration::from_secs(40));
    }
    tokio::time::sleep(Duration::from_secs(550)).await;
    ask(&mut pooled).await;
}
