//! Which request reaches which port, and what the proxy answers itself.

use std::time::{Duration, Instant};

use crate::support::{ID, TOKEN, read_head, within, world, world_with};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use soulbox_proxy::ProxyConfig;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers with the head that it received as the body.
async fn mirror(mut socket: TcpStream) {
    let head = read_head(&mut socket).await;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}",
        head.len()
    );
    drop(socket.write_all(answer.as_bytes()).await);
}

#[tokio::test]
async fn a_request_reaches_the_port_that_its_host_names_with_the_host_kept() {
    let world = world().await;
    world.server(8080, mirror).await;
    let host = format!("8080-{ID}.sbx.localhost:3443");
    let answer = world.get(&host, "/a%20b?q=1").await;
    assert!(answer.contains("GET /a%20b?q=1 HTTP/1.1\r\n"), "{answer}");
    assert!(
        answer.to_lowercase().contains(&format!("host: {host}\r\n")),
        "{answer}"
    );
    assert!(
        answer.contains("X-Forwarded-For: 127.0.0.1\r\n"),
        "{answer}"
    );
    assert!(answer.contains("X-Forwarded-Proto: http\r\n"), "{answer}");
    assert!(!answer.contains("Connection: close\r\n\r\nGET"), "{answer}");
}

#[tokio::test]
async fn headers_route_on_a_shared_host_and_the_node_token_is_taken_away() {
    let world = world().await;
    world.server(49983, mirror).await;
    let answer = world
        .raw(&format!(
            "GET /health HTTP/1.1\r\nHost: localhost:3000\r\nE2b-Sandbox-Id: {ID}\r\n\
             E2b-Sandbox-Port: 49983\r\nX-Soulbox-Node-Token: guess\r\nX-Access-Token: mine\r\n\
             Connection: close\r\n\r\n"
        ))
        .await;
    assert!(
        answer.to_lowercase().contains("x-access-token: mine"),
        "{answer}"
    );
    assert!(!answer.contains("guess"), "{answer}");
}

#[tokio::test]
async fn a_signed_url_finds_its_sandbox_without_host_or_headers() {
    let world = world().await;
    world.server(49983, mirror).await;
    let hash = Sha256::digest(format!("a b:read::{TOKEN}").as_bytes());
    let signature = STANDARD_NO_PAD.encode(hash).replace('+', "%2B");
    let path = format!("/files?path=a+b&signature=v1_{signature}");
    let answer = world.get("127.0.0.1:3000", &path).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("GET /files?path=a+b&"), "{answer}");
    let answer = world
        .get("127.0.0.1:3000", "/files?path=a+b&signature=v1_wrong")
        .await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(
        answer.ends_with(r#"{"message":"invalid signature","code":401}"#),
        "{answer}"
    );
}

/// As npm e2b before 2.14 asks for files, and PyPI e2b 2.7 to 2.25 for everything after `connect`.
#[tokio::test]
async fn a_token_alone_finds_its_sandbox_and_none_after_it_ended() {
    let world = world().await;
    world.server(49983, mirror).await;
    let ask = async |path: &str, token: &str| {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nX-Access-Token: {token}\r\n");
        world.raw(&format!("{head}Connection: close\r\n\r\n")).await
    };
    for path in ["/files?path=a", "/health", "/process.Process/List"] {
        let answer = ask(path, TOKEN).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(
            answer.contains(&format!("GET {path} HTTP/1.1\r\n")),
            "{answer}"
        );
        let answer = ask(path, "another").await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        let body = r#"{"message":"The sandbox was not found","code":502}"#;
        assert!(answer.ends_with(body), "{answer}");
    }
    world.kill();
    let answer = ask("/health", TOKEN).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

#[tokio::test]
async fn an_unknown_sandbox_is_a_502_in_json() {
    let world = world().await;
    let answer = world.get("8080-inobody.sbx.localhost", "/").await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let body = r#"{"sandboxId":"inobody","message":"The sandbox was not found","code":502}"#;
    assert!(answer.ends_with(body), "{answer}");
}

#[tokio::test]
async fn a_killed_sandbox_is_not_found_with_the_very_next_request() {
    let world = world().await;
    world.canned(8080, OK).await;
    let host = format!("8080-{ID}.sbx.localhost");
    assert!(world.get(&host, "/").await.ends_with("ok"));
    world.kill();
    let answer = world.get(&host, "/").await;
    assert!(answer.contains("The sandbox was not found"), "{answer}");
}

#[tokio::test]
async fn a_closed_port_is_a_502_after_about_a_second_of_patience() {
    let world = world().await;
    let started = Instant::now();
    let answer = world.get(&format!("8080-{ID}.sbx.localhost"), "/").await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.contains(r#""message":"The sandbox is running but port is not open","port":8080"#)
    );
    assert!(
        started.elapsed() >= Duration::from_millis(950),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_server_that_starts_to_listen_a_little_late_is_reached() {
    let world = world().await;
    // The port is known but closed: dialling is refused until a server listens there.
    let reserved = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    world.node.open(8080, address);
    let host = format!("8080-{ID}.sbx.localhost");
    let asking = world.get(&host, "/");
    let late = async {
        tokio::time::sleep(Duration::from_millis(350)).await;
        let listener = TcpListener::bind(address).await.unwrap();
        mirror(listener.accept().await.unwrap().0).await;
    };
    let (answer, ()) = tokio::join!(asking, late);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn control_routes_of_envd_do_not_exist_outside() {
    let world = world().await;
    world.canned(49983, OK).await;
    world.canned(8080, OK).await;
    for path in ["/init", "/files/%2e%2e/init", "//freeze/", "/soulbox/ring"] {
        let answer = world.get(&format!("49983-{ID}.sbx.localhost"), path).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        assert!(
            answer.contains(&format!(r#""path":"{path}","code":404"#)),
            "{path}: {answer}"
        );
    }
    let answer = world
        .get(&format!("8080-{ID}.sbx.localhost"), "/init")
        .await;
    assert!(
        answer.ends_with("ok"),
        "other ports have their own /init: {answer}"
    );
}

#[tokio::test]
async fn malformed_targets_are_a_400_in_plain_text() {
    let world = world().await;
    for head in [
        "Host: 0-itest.sbx.localhost",
        "Host: 99999-itest.sbx.localhost",
        "Host: localhost\r\nE2b-Sandbox-Id: itest",
        "Host: localhost\r\nE2b-Sandbox-Port: 80",
        "Host: localhost\r\nE2b-Sandbox-Id: ../x\r\nE2b-Sandbox-Port: 80",
    ] {
        let answer = world
            .raw(&format!(
                "GET / HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n"
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{head}: {answer}");
        assert!(answer.contains("text/plain"), "{head}: {answer}");
    }
}

#[tokio::test]
async fn a_sandbox_has_a_limit_of_open_streams() {
    let mut config = ProxyConfig::new("sbx.localhost");
    config.max_streams_per_sandbox = 1;
    let world = world_with(config).await;
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            drop(
                socket
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1")
                    .await,
            );
            std::future::pending::<()>().await;
        })
        .await;
    let host = format!("8080-{ID}.sbx.localhost");
    let mut first = world.connect().await;
    first
        .write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    within(read_head(&mut first)).await;
    let second = world.get(&host, "/").await;
    assert!(second.starts_with("HTTP/1.1 429"), "{second}");
    drop(first);
    while world.proxy.counters().snapshot().open > 0 {
        tokio::task::yield_now().await;
    }
}
