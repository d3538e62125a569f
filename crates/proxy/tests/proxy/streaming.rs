//! Bytes in both directions, and how streams end.

use std::time::Duration;

use crate::support::{ID, World, read_head, read_until, within, world, world_with};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use soulbox_proxy::ProxyConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn host() -> String {
    format!("8080-{ID}.sbx.localhost")
}

/// Sends the start of a chunked answer, then neither goes on nor closes.
async fn endless(mut socket: TcpStream) {
    read_head(&mut socket).await;
    let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    drop(socket.write_all(start.as_bytes()).await);
    std::future::pending::<()>().await;
}

async fn ask(world: &World, extra: &str) -> TcpStream {
    let mut socket = world.connect().await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n{extra}\r\n", host());
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

async fn rest(socket: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    drop(within(socket.read_to_end(&mut rest)).await); // a reset is as good an end as any
    String::from_utf8_lossy(&rest).into_owned()
}

#[tokio::test]
async fn the_first_bytes_arrive_before_the_answer_is_complete() {
    let world = world().await;
    world.server(8080, endless).await;
    let mut client = ask(&world, "").await;
    assert!(read_until(&mut client, "hello").await.ends_with("hello"));
}

#[tokio::test]
async fn killing_the_sandbox_aborts_an_http1_stream_without_a_final_chunk() {
    let world = world().await;
    world.server(8080, endless).await;
    let mut client = ask(&world, "").await;
    read_until(&mut client, "hello\r\n").await;
    world.kill();
    let rest = rest(&mut client).await;
    assert!(!rest.contains("0\r\n\r\n"), "a polite end: {rest:?}");
    assert_eq!(world.proxy.counters().snapshot().cut, 1);
}

#[tokio::test]
async fn a_server_that_breaks_off_aborts_the_stream_too() {
    let world = world().await;
    world
        .canned(
            8080,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        )
        .await;
    let mut client = ask(&world, "").await;
    let all = rest(&mut client).await;
    assert!(
        all.contains("hello") && !all.contains("0\r\n\r\n"),
        "{all:?}"
    );
}

#[tokio::test]
async fn killing_the_sandbox_resets_an_http2_stream_and_spares_the_connection() {
    let world = world().await;
    world.server(8080, endless).await;
    let io = TokioIo::new(world.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = || {
        Request::get(format!("http://{}/", host()))
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    let mut answer = within(sender.send_request(request())).await.unwrap();
    let frame = within(answer.frame()).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "hello");
    world.kill();
    let error = within(answer.frame()).await.unwrap().unwrap_err();
    let reason = std::error::Error::source(&error)
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(reason.contains("stream error"), "{error}: {reason}");
    let next = within(sender.send_request(request())).await.unwrap();
    assert_eq!(next.status(), 502);
}

#[tokio::test]
async fn an_upgrade_carries_bytes_in_both_directions_and_is_cut_with_the_sandbox() {
    let world = world().await;
    world
        .server(8080, |mut socket| async move {
            let head = read_head(&mut socket).await.to_lowercase();
            assert!(
                head.contains("connection: upgrade") && head.contains("upgrade: echo"),
                "{head}"
            );
            let accept =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
            drop(socket.write_all(accept.as_bytes()).await);
            let (mut read, mut write) = socket.split();
            drop(tokio::io::copy(&mut read, &mut write).await);
        })
        .await;
    let mut client = ask(&world, "Connection: Upgrade\r\nUpgrade: echo\r\n").await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.to_lowercase().contains("upgrade: echo"), "{head}");
    for word in ["ping", "pong"] {
        client.write_all(word.as_bytes()).await.unwrap();
        assert_eq!(read_until(&mut client, word).await, word);
    }
    world.kill();
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_answer() {
    let world = world().await;
    world
        .canned(
            8080,
            "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno",
        )
        .await;
    let mut client = ask(&world, "Connection: Upgrade, close\r\nUpgrade: x\r\n").await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 426"), "{head}");
    assert_eq!(read_until(&mut client, "no").await, "no");
}

#[tokio::test]
async fn an_upload_streams_before_it_is_complete() {
    let world = world().await;
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            drop(
                socket
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
                    .await,
            );
            read_until(&mut socket, "part").await;
            drop(socket.write_all(b"part").await);
            std::future::pending::<()>().await;
        })
        .await;
    let mut client = world.connect().await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(read_until(&mut client, "part").await.ends_with("part"));
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_sandbox_from_sending() {
    let world = world().await;
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            drop(socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
            while socket.write_all(&[b'x'; 16384]).await.is_ok() {}
        })
        .await;
    let mut client = ask(&world, "").await;
    read_head(&mut client).await;
    let bytes = || world.proxy.counters().snapshot().bytes_from_sandboxes;
    // Kernel buffers fill up, then nothing moves any more.
    let mut last = bytes();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if bytes() == last && last > 0 {
            break;
        }
        last = bytes();
        assert!(last < 64 << 20, "the proxy hoards");
    }
    let mut some = vec![0; 8 << 20];
    within(client.read_exact(&mut some)).await.unwrap();
    assert!(bytes() > last, "reading lets it go on");
}

#[tokio::test]
async fn an_old_server_that_ends_by_closing_is_understood() {
    let world = world().await;
    world
        .canned(8080, "HTTP/1.0 200 OK\r\nServer: SimpleHTTP\r\n\r\nhello")
        .await;
    let mut client = ask(&world, "Connection: close\r\n").await;
    let all = rest(&mut client).await;
    assert!(
        all.starts_with("HTTP/1.1 200") && all.ends_with("5\r\nhello\r\n0\r\n\r\n"),
        "{all:?}"
    );
}

#[tokio::test]
async fn hostile_answers_become_a_502() {
    let world = world().await;
    let many = "X-Many: 1\r\n".repeat(500);
    let long = format!("X: {}\r\n", "a".repeat(1 << 20));
    let answers = [
        "garbage\r\n\r\n".to_owned(),
        String::new(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\n{long}\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n".to_owned(),
        "HTTP/9.9 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 99 No\r\n\r\n".to_owned(),
    ];
    for answer in answers {
        let start: String = answer.chars().take(60).collect();
        world.canned(8080, answer).await;
        let mut client = ask(&world, "Connection: close\r\n").await;
        let all = rest(&mut client).await;
        assert!(
            all.starts_with("HTTP/1.1 502") && all.contains(r#""code":502"#),
            "{start:?}: {all:.200}"
        );
    }
}

#[tokio::test]
async fn nonsense_about_the_length_does_not_break_the_clients_connection() {
    let world = world().await;
    let head =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, nonsense\r\nContent-Length: x\r\n\r\nhi";
    world.canned(8080, head).await;
    let mut client = ask(&world, "Connection: close\r\n").await;
    let all = rest(&mut client).await;
    assert!(
        all.starts_with("HTTP/1.1 200") && all.ends_with("2\r\nhi\r\n0\r\n\r\n"),
        "{all:?}"
    );
}

#[tokio::test]
async fn an_http2_client_gets_bodies_and_trailers_of_an_http1_server() {
    let world = world().await;
    world.server(8080, |mut socket| async move {
        let head = read_head(&mut socket).await.to_lowercase();
        assert!(head.contains(&format!("host: {}", host())) && head.contains("te: trailers"), "{head}");
        assert!(read_until(&mut socket, "body").await.ends_with("body"));
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\nConnection: close\r\n\r\n\
                      2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
        drop(socket.write_all(answer.as_bytes()).await);
    }).await;
    let io = TokioIo::new(world.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}/", host()))
        .header("te", "trailers")
        .body(Full::new(Bytes::from("body")))
        .unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("connection"));
    let body = within(answer.into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert_eq!(body.to_bytes(), "ok");
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_connection_into_the_sandbox() {
    let world = world().await;
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    let gone = std::sync::Mutex::new(Some(gone));
    world
        .server(8080, move |mut socket| {
            let gone = gone.lock().unwrap().take();
            async move {
                read_head(&mut socket).await;
                drop(
                    socket
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
                        .await,
                );
                drop(socket.read(&mut [0; 8]).await);
                gone.unwrap().send(()).unwrap();
            }
        })
        .await;
    let mut client = ask(&world, "").await;
    read_until(&mut client, "hello").await;
    drop(client);
    within(is_gone).await.unwrap();
}

#[tokio::test]
async fn a_stream_on_which_nothing_moves_is_cut_after_the_limit() {
    let mut config = ProxyConfig::new("sbx.localhost");
    config.idle_timeout = Duration::from_millis(150);
    let world = world_with(config).await;
    world.server(8080, endless).await;
    let mut client = ask(&world, "").await;
    let all = rest(&mut client).await;
    assert!(
        all.contains("hello") && !all.contains("0\r\n\r\n"),
        "{all:?}"
    );
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            std::future::pending::<()>().await;
        })
        .await;
    let mut client = ask(&world, "Connection: close\r\n").await;
    assert!(rest(&mut client).await.starts_with("HTTP/1.1 504"));
}

#[tokio::test]
async fn head_and_empty_answers_keep_their_shape() {
    let world = world().await;
    world
        .canned(8080, "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        .await;
    let request = format!(
        "HEAD / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        host()
    );
    let answer = world.raw(&request).await;
    assert!(
        answer.to_lowercase().contains("content-length: 1234"),
        "{answer}"
    );
    world.canned(8080, "HTTP/1.1 204 No Content\r\n\r\n").await;
    let answer = world.get(&host(), "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 204") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
}
