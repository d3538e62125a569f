//! More streams than the limit of open ones.

use soulbox_proxy::{ProxyConfig, StreamLimits};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{ID, World, read_head, read_until, within, world_with};

/// A client may have one of the two streams.
async fn world_of_two_streams() -> World {
    let mut config = ProxyConfig::new("sbx.localhost");
    config.stream_limits = StreamLimits {
        max_open: 2,
        max_descriptors: u64::MAX,
    };
    let world = world_with(config).await;
    world.server(8080, endless).await;
    world.canned(8081, "HTTP/1.1 204 No Content\r\n\r\n").await;
    world
}

/// Goes on for as long as the client, with or without an upgrade.
async fn endless(mut socket: TcpStream) {
    let head = read_head(&mut socket).await;
    let answer = if head.to_lowercase().contains("upgrade: echo") {
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"
    } else {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    };
    drop(socket.write_all(answer.as_bytes()).await);
    read_until(&mut socket, "never").await;
}

async fn stream(world: &World, headers: &str) -> TcpStream {
    let mut client = world.connect().await;
    let head = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n{headers}\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut client, "hello").await;
    client
}

async fn ask(world: &World) -> String {
    world.get(&format!("8081-{ID}.sbx.localhost"), "/").await
}

#[tokio::test(start_paused = true)]
async fn a_stream_beyond_the_limit_is_refused_with_retry_after() {
    let world = world_of_two_streams().await;
    let open = stream(&world, "").await;
    let started = tokio::time::Instant::now();
    let answer = ask(&world).await;
    assert_eq!(started.elapsed().as_secs(), 5, "it was waited for");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert!(
        answer.contains(&format!(r#""sandboxId":"{ID}""#)),
        "{answer}"
    );
    assert!(answer.ends_with(r#""code":503}"#), "{answer}");
    let counters = world.proxy.counters().snapshot();
    assert_eq!((counters.streams_refused, counters.open), (1, 1));
    drop(open);
}

#[tokio::test]
async fn a_permit_is_free_when_its_stream_or_tunnel_ends() {
    let world = world_of_two_streams().await;
    for headers in ["", "Connection: Upgrade\r\nUpgrade: echo\r\n"] {
        let open = stream(&world, headers).await;
        let mut next = Box::pin(ask(&world));
        tokio::select! {
            biased;
            answer = &mut next => panic!("{answer}"),
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
        }
        drop(open);
        assert!(within(next).await.starts_with("HTTP/1.1 204"));
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_permit_fails_at_once_when_the_sandbox_ends() {
    let world = world_of_two_streams().await;
    let _open = stream(&world, "").await;
    let mut next = Box::pin(ask(&world));
    tokio::select! {
        biased;
        answer = &mut next => panic!("{answer}"),
        () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
    }
    world.kill();
    assert!(within(next).await.starts_with("HTTP/1.1 502"));
}
