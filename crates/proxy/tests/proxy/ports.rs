//! Ports as raw bytes, for the owner.

use std::time::Duration;

use soulbox_proxy::{ProxyConfig, StreamLimits};
use soulbox_runtime::Node;
use soulbox_types::{ENVD_PORT, PauseMode, SandboxState};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{World, id, read_head, within, world, world_with};

/// The head of the answer, and what may be a tunnel by now.
async fn open(world: &World, port: u16) -> (String, TcpStream) {
    let mut client = world.connect().await;
    let request = format!(
        "GET /owned-port/{port} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    (read_head(&mut client).await, client)
}

async fn opened(world: &World, port: u16) -> TcpStream {
    let (head, client) = open(world, port).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.to_lowercase().contains("upgrade: tcp"), "{head}");
    client
}

/// Answers only when its client has finished writing.
async fn serve_answers(world: &World, port: u16) {
    world
        .server(port, |mut socket| async move {
            let mut asked = Vec::new();
            socket.read_to_end(&mut asked).await.unwrap();
            asked.reverse();
            socket.write_all(&asked).await.unwrap();
        })
        .await;
}

#[tokio::test]
async fn bytes_pass_unchanged_and_a_client_that_has_finished_still_reads() {
    let world = world().await;
    serve_answers(&world, 7).await;
    let mut client = opened(&world, 7).await;
    let sent: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    client.write_all(&sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    within(client.read_to_end(&mut got)).await.unwrap();
    got.reverse();
    assert!(got == sent, "{} bytes came back", got.len());
    let open = || world.proxy.counters().snapshot().open;
    within(async {
        while open() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let counted = world.proxy.counters().snapshot();
    assert_eq!(counted.bytes_to_sandboxes, 300_000);
    assert_eq!(counted.bytes_from_sandboxes, 300_000);
}

#[tokio::test]
async fn a_server_that_speaks_first_is_heard_and_its_end_is_passed_on() {
    let world = world().await;
    world
        .server(22, |mut socket| async move {
            socket.write_all(b"hello").await.unwrap();
        })
        .await;
    let mut client = opened(&world, 22).await;
    let mut got = String::new();
    within(client.read_to_string(&mut got)).await.unwrap();
    assert_eq!(got, "hello");
}

#[tokio::test]
async fn it_is_cut_when_the_sandbox_ends_or_is_paused() {
    for pause in [false, true] {
        let world = world().await;
        serve_answers(&world, 7).await;
        let mut client = opened(&world, 7).await;
        if pause {
            world.node.pause(&id(), PauseMode::Memory).await.unwrap();
        } else {
            world.kill();
        }
        let mut rest = Vec::new();
        drop(within(client.read_to_end(&mut rest)).await);
        assert!(rest.is_empty());
        assert_eq!(world.proxy.counters().snapshot().cut, 1);
    }
}

#[tokio::test]
async fn it_wakes_a_paused_sandbox_without_any_token() {
    let world = world().await;
    serve_answers(&world, 7).await;
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    drop(opened(&world, 7).await);
    assert_eq!(world.node.get(&id()).unwrap().state, SandboxState::Running);
}

#[tokio::test]
async fn a_closed_port_and_envds_are_refused() {
    let world = world().await;
    let (head, _) = open(&world, 81).await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    serve_answers(&world, ENVD_PORT).await;
    let (head, _) = open(&world, ENVD_PORT).await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
}

#[tokio::test]
async fn one_on_which_nothing_moves_is_cut() {
    let mut config = ProxyConfig::new("sbx.localhost");
    config.idle_timeout = Duration::from_millis(200);
    let world = world_with(config).await;
    serve_answers(&world, 7).await;
    let mut client = opened(&world, 7).await;
    let mut rest = Vec::new();
    drop(within(client.read_to_end(&mut rest)).await);
    assert_eq!(world.proxy.counters().snapshot().cut, 1);
}

#[tokio::test]
async fn it_counts_among_the_streams_that_there_may_be() {
    let mut config = ProxyConfig::new("sbx.localhost");
    config.stream_limits = StreamLimits {
        max_open: 2,
        ..StreamLimits::default()
    };
    config.max_streams_per_sandbox = 1;
    let world = world_with(config).await;
    serve_answers(&world, 7).await;
    let _first = opened(&world, 7).await;
    let (head, _) = open(&world, 7).await;
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
}
