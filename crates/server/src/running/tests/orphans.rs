//! Answers that wait for their clients when their sandbox has ended.

use super::crowd::{connect_without_window, deaf, full_house, page};
use super::*;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstart\r\n";

async fn streams_are(world: &World, open: usize) -> bool {
    let line = format!("\nsoulbox_proxy_streams_open {open}\n");
    page(world).await.contains(&line)
}

async fn until_streams_are(world: &World, open: usize) {
    within(async {
        while !streams_are(world, open).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A second after the other passes, and everything else goes on as ever.
async fn a_minute_later_none_is_left(world: &World) {
    for _ in 0..60 {
        if streams_are(world, 0).await {
            return;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
    }
    panic!("they stay: {}", page(world).await);
}

fn get(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn streams_whose_client_gives_no_window_do_not_outlive_their_sandbox_and_the_connection_does()
{
    let world = full_house(8);
    world.inside(8080, CHUNKED).await;
    let (mut sender, connection) = connect_without_window(&world).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        let uri = format!("http://8080-{ID}.sbx.localhost/");
        answers.push(within(sender.send_request(get(&uri))).await.unwrap());
    }
    until_streams_are(&world, 5).await;
    world.node.kill();
    a_minute_later_none_is_left(&world).await;
    // The client hears of it, and goes on with the same connection.
    for answer in answers {
        let end = within(answer.into_body().collect()).await;
        assert!(end.is_err(), "cut off is not the end");
    }
    let other = within(sender.send_request(get("http://localhost/health"))).await;
    assert_eq!(other.unwrap().status(), 200);
    assert!(!connection.is_finished());
}

#[tokio::test]
async fn a_connection_whose_client_does_not_read_does_not_outlive_the_sandbox_it_asked() {
    let world = full_house(8);
    let _deaf = deaf(&world, "").await;
    until_streams_are(&world, 1).await;
    world.node.kill();
    a_minute_later_none_is_left(&world).await;
}
