//! Paused sandboxes: streams are cut, and the right traffic wakes them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use soulbox_runtime::{Error, Node, NotWoken, Waker};
use soulbox_types::{PauseMode, SandboxId, SandboxState, UnixMillis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ID, TOKEN, World, id, read_head, read_until, within, world, world_with_waker,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn ask(world: &World, port: u16, extra: &str) -> String {
    let request = format!(
        "GET /health HTTP/1.1\r\nHost: {port}-{ID}.sbx.localhost\r\nConnection: close\r\n{extra}\r\n"
    );
    world.raw(&request).await
}

fn runs(world: &World) -> bool {
    world.node.get(&id()).unwrap().state == SandboxState::Running
}

#[tokio::test]
async fn a_pause_cuts_the_streams() {
    let world = world().await;
    world
        .server(8080, |mut socket| async move {
            read_head(&mut socket).await;
            let start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
            drop(socket.write_all(start).await);
            std::future::pending::<()>().await;
        })
        .await;
    let mut client = world.connect().await;
    let request = format!("GET / HTTP/1.1\r\nHost: 8080-{ID}.sbx.localhost\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut client, "hello\r\n").await;
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    let mut rest = Vec::new();
    drop(within(client.read_to_end(&mut rest)).await);
    assert!(rest.is_empty(), "a polite end: {rest:?}");
}

#[tokio::test]
async fn traffic_wakes_a_paused_sandbox_and_is_answered_by_it() {
    let world = world().await;
    world.canned(8080, OK).await;
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    assert!(ask(&world, 8080, "").await.ends_with("ok"));
    let deadline = world.node.get(&id()).unwrap().spec.deadline;
    let seconds = deadline.remaining(UnixMillis::now()).as_secs();
    assert!((290..=300).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn on_envds_port_only_its_token_wakes() {
    let world = world().await;
    world.canned(49983, OK).await;
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    for wrong in ["", "X-Access-Token: guess\r\n"] {
        let answer = ask(&world, 49983, wrong).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains(r#""sandboxId":"itest""#), "{answer}");
        assert!(!runs(&world));
    }
    let answer = ask(&world, 49983, &format!("X-Access-Token: {TOKEN}\r\n")).await;
    assert!(answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn one_without_memory_is_not_woken() {
    let world = world().await;
    world.canned(8080, OK).await;
    world
        .node
        .pause(&id(), PauseMode::Filesystem)
        .await
        .unwrap();
    let answer = ask(&world, 8080, "").await;
    assert!(answer.contains("The sandbox was not found"), "{answer}");
    assert!(!runs(&world));
}

/// Refuses every wake.
#[derive(Debug)]
struct Full;

#[async_trait]
impl Waker for Full {
    async fn wake(&self, _: &SandboxId, _: UnixMillis) -> Result<(), NotWoken> {
        Err(NotWoken::TooMany(3))
    }
}

#[tokio::test]
async fn traffic_does_not_wake_one_whose_owner_has_as_many_as_allowed() {
    let world = world_with_waker(Arc::new(Full)).await;
    world.canned(8080, OK).await;
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    let answer = ask(&world, 8080, "").await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(
        answer.contains("as many running ones as allowed"),
        "{answer}"
    );
    assert!(!runs(&world));
}

/// The machine under it ends no processes.
#[derive(Debug)]
struct Stuck;

#[async_trait]
impl Waker for Stuck {
    async fn wake(&self, _: &SandboxId, _: UnixMillis) -> Result<(), NotWoken> {
        Err(NotWoken::Node(Error::KernelStuck {
            ends: 4,
            longest: Duration::from_secs(31),
        }))
    }
}

#[tokio::test]
async fn traffic_to_a_machine_that_is_stuck_is_told_so() {
    let world = world_with_waker(Arc::new(Stuck)).await;
    world.canned(8080, OK).await;
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    let answer = ask(&world, 8080, "").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("its operator"), "{answer}");
    assert!(!runs(&world));
}
