//! Hostile servers inside, and clients that take nothing: neither costs the server much.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{ID, read_head, read_until, within, world, world_with};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use soulbox_proxy::{ProxyConfig, StreamLimits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn host() -> String {
    format!("8080-{ID}.sbx.localhost")
}

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// Sends the same again and again, as fast as it is taken.
async fn repeat(socket: &mut TcpStream, text: &str) {
    let many = text.repeat((64 << 10) / text.len() + 1);
    while socket.write_all(many.as_bytes()).await.is_ok() {}
}

#[tokio::test]
async fn a_flood_of_interim_answers_is_read_no_further_than_its_beginning() {
    let with_fields = format!(
        "HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n",
        "x".repeat(900)
    );
    for flood in [CONTINUE.to_owned(), with_fields] {
        let world = world().await;
        world
            .server(8080, move |mut socket| {
                let flood = flood.clone();
                async move {
                    read_head(&mut socket).await;
                    repeat(&mut socket, &flood).await;
                }
            })
            .await;
        let answer = world.get(&host(), "/").await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains("valid HTTP"), "{answer}");
        let read = world.proxy.counters().snapshot().bytes_from_sandboxes;
        assert!(read <= 64 << 10, "{read} bytes were read");
    }
}

#[tokio::test]
async fn a_few_interim_answers_are_passed_over() {
    let world = world().await;
    let answer = CONTINUE.repeat(16) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    world.canned(8080, answer).await;
    let answer = world.get(&host(), "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_flood_while_the_request_is_still_being_sent_ends_it_too() {
    let world = world().await;
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            repeat(&mut socket, CONTINUE).await;
        })
        .await;
    let mut client = world.connect().await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 1000000\r\n\r\n",
        host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

#[tokio::test]
async fn endless_trailers_and_chunk_extensions_are_cut() {
    let starts = [
        ("0\r\n", "x: y\r\n"),
        ("0\r\nx: ", "yyyyyyyy"),
        ("1;", "yyyyyyyy"),
        ("", "1;yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\nx\r\n"),
    ];
    for (start, more) in starts {
        let world = world().await;
        world
            .server(8080, move |mut socket| async move {
                read_head(&mut socket).await;
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                drop(socket.write_all(head.as_bytes()).await);
                drop(socket.write_all(start.as_bytes()).await);
                repeat(&mut socket, more).await;
            })
            .await;
        world.get(&host(), "/").await;
        let read = world.proxy.counters().snapshot().bytes_from_sandboxes;
        assert!(read <= 512 << 10, "{start:?}: {read} bytes were read");
    }
}

/// Bodies in small chunks come whole, but not faster than anybody needs. No size is free: chunks of
/// 513 bytes once were.
#[tokio::test]
async fn small_chunks_are_slowed_down_and_all_arrive() {
    const CHUNKS: usize = 3_000;
    for size in [1, 513, 1025] {
        let mut config = ProxyConfig::new("sbx.localhost");
        config.small_chunks_per_second = 1_000;
        let world = world_with(config).await;
        let chunk = format!("{size:x}\r\n{}\r\n", "x".repeat(size));
        let body = chunk.repeat(CHUNKS);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        world.canned(8080, format!("{head}{body}0\r\n\r\n")).await;
        let io = TokioIo::new(world.connect().await);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("http://{}/", host()))
            .body(Empty::<Bytes>::new())
            .unwrap();
        let answer = within(sender.send_request(request)).await.unwrap();
        let body = tokio::time::timeout(Duration::from_mins(1), answer.into_body().collect());
        let body = body.await.unwrap().unwrap().to_bytes();
        assert_eq!(body.len(), CHUNKS * size);
        let slowed = world.proxy.counters().snapshot().slowed;
        assert!(slowed > 0, "chunks of {size} bytes were free");
    }
}

/// The same in the other direction.
#[tokio::test]
async fn tiny_chunks_of_a_client_are_slowed_down_and_all_arrive() {
    const CHUNKS: usize = 3_000;
    let mut config = ProxyConfig::new("sbx.localhost");
    config.small_chunks_per_second = 1_000;
    let world = world_with(config).await;
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            let body = read_until(&mut socket, "0\r\n\r\n").await;
            let got = body.matches('x').count();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{got}");
            drop(socket.write_all(answer.as_bytes()).await);
        })
        .await;
    let mut client = world.connect().await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let body = "1\r\nx\r\n".repeat(CHUNKS) + "0\r\n\r\n";
    client.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(client.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with(&CHUNKS.to_string()), "{answer}");
    assert!(world.proxy.counters().snapshot().slowed > 0);
}

/// With a client that gives no window, nothing polls the response body.
#[tokio::test]
async fn the_connection_into_a_sandbox_ends_with_it_whatever_the_client_does() {
    let mut config = ProxyConfig::new("sbx.localhost");
    config.stream_limits = StreamLimits {
        max_open: 2, // and an address has half of them
        ..StreamLimits::default()
    };
    let world = world_with(config).await;
    let open = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&open);
    world
        .server(8080, move |mut socket| {
            let open = Arc::clone(&counted);
            async move {
                open.fetch_add(1, SeqCst);
                read_head(&mut socket).await;
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
                drop(socket.write_all(head.as_bytes()).await);
                let (mut read, mut write) = socket.split();
                let piece = vec![7; 64 << 10];
                let send = async { while write.write_all(&piece).await.is_ok() {} };
                let hung_up = async { while read.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} };
                tokio::select! {
                    () = send => {}
                    () = hung_up => {}
                }
                open.fetch_sub(1, SeqCst);
            }
        })
        .await;
    let io = TokioIo::new(world.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake(io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{}/", host()))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(open.load(SeqCst), 1);

    world.kill();
    within(async {
        while open.load(SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // The client is still there, with its stream.
    assert_eq!(world.proxy.counters().snapshot().open, 1);
    drop(answer);
}

/// Seen from inside, while the client keeps its side open.
#[tokio::test]
async fn an_upgraded_connection_into_a_sandbox_ends_with_it() {
    let world = world().await;
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    let closed = std::sync::Mutex::new(Some(closed));
    world
        .server(8080, move |mut socket| {
            let closed = closed.lock().unwrap().take();
            async move {
                read_head(&mut socket).await;
                let accept =
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
                drop(socket.write_all(accept.as_bytes()).await);
                while socket.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
                closed.unwrap().send(()).unwrap();
            }
        })
        .await;
    let mut client = world.connect().await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        host()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    world.kill();
    within(is_closed).await.unwrap();
}

#[tokio::test]
async fn sandboxes_are_not_asked_for_what_cannot_be_a_signature() {
    let world = world().await;
    let long = "x".repeat(60 << 10);
    for method in ["GET", "OPTIONS"] {
        for (path, status) in [
            (format!("/files?signature=x&path={long}"), "HTTP/1.1 400"),
            (
                format!("/files?signature=v1_{}&path={long}", "A".repeat(43)),
                "HTTP/1.1 400",
            ),
            ("/files?signature=x&path=a".to_owned(), "HTTP/1.1 401"),
            (
                format!("/files?signature=v1_{}&path=a", "A".repeat(42)),
                "HTTP/1.1 401",
            ),
        ] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let answer = world.raw(&request).await;
            assert!(answer.starts_with(status), "{answer}");
        }
    }
    assert_eq!(world.node.lists.load(SeqCst), 0);
    let possible = format!("/files?signature=v1_{}&path=a", "A".repeat(43));
    let answer = world.get("localhost", &possible).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert_eq!(world.node.lists.load(SeqCst), 1);
}
