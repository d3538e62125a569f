//! Clients that do not take their responses, also when the sandbox has ended.

use hyper::client::conn::http2;

use super::connection_limits::{
    connect, connect_without_reading, connect_without_window, limited_to, page,
};
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

/// Time passes second by second, so that everything else runs in between.
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
    let world = limited_to(8);
    world.inside(8080, CHUNKED).await;
    let (mut sender, connection) = connect_without_window(&world).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        let uri = format!("http://8080-{ID}.sbx.localhost/");
        answers.push(within(sender.send_request(get(&uri))).await.unwrap());
    }
    until_streams_are(&world, 5).await;
    world.kill();
    a_minute_later_none_is_left(&world).await;
    // The client gets a reset, and goes on with the same connection.
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
    let world = limited_to(8);
    let _client = connect_without_reading(&world, "").await;
    until_streams_are(&world, 1).await;
    world.kill();
    a_minute_later_none_is_left(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_also_when_nothing_is_full() {
    let world = limited_to(1000);
    for upgrade in ["", "Connection: upgrade\r\nUpgrade: websocket\r\n"] {
        let mut client = connect_without_reading(&world, upgrade).await;
        until_stalled(&world, 1).await;
        let started = tokio::time::Instant::now();
        until_stalled(&world, 0).await;
        assert!((29..=31).contains(&started.elapsed().as_secs()));
        let mut received = Vec::new();
        let end = client.read_to_end(&mut received).await;
        assert!(end.is_err() || !received.ends_with(b"0\r\n\r\n"));
    }
}

#[tokio::test]
async fn a_client_that_reads_now_and_then_is_not_cut() {
    let world = limited_to(1000);
    let mut slow = connect_without_reading(&world, "").await;
    let mut some = vec![0; 16 << 20];
    for _ in 0..5 {
        until_stalled(&world, 1).await;
        pass(Duration::from_secs(20)).await;
        within(slow.read_exact(&mut some)).await.unwrap();
    }
}

async fn until_stalled(world: &World, count: usize) {
    let line = format!("{{state=\"stalled\"}} {count}\n");
    while !page(world).await.contains(&line) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The clock runs, so that bytes arrive before time passes.
async fn pass(time: Duration) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn an_http2_client_that_takes_a_little_now_and_then_is_not_cut() {
    const WINDOW: usize = 128 << 10;
    const BODY: usize = 10_000_000;
    let world = limited_to(8);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
    let answer: &'static str = Box::leak((head + &"x".repeat(BODY)).into_boxed_str());
    world.inside(8080, answer).await;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(u32::try_from(WINDOW).unwrap())
        .handshake(TokioIo::new(connect(&world).await))
        .await
        .unwrap();
    tokio::spawn(connection);
    let uri = format!("http://8080-{ID}.sbx.localhost/");
    let mut answer = within(sender.send_request(get(&uri))).await.unwrap();
    for _ in 0..5 {
        until_stalled(&world, 1).await;
        pass(Duration::from_secs(25)).await;
        let mut taken = 0;
        while taken < WINDOW {
            let frame = within(answer.frame()).await.unwrap().unwrap();
            taken += frame.into_data().unwrap().len();
        }
    }
    until_stalled(&world, 1).await;
    pass(Duration::from_secs(31)).await;
    until_stalled(&world, 0).await;
    let rest = within(answer.into_body().collect()).await;
    assert!(rest.is_err(), "it takes nothing any more");
    let other = within(sender.send_request(get("http://localhost/health"))).await;
    assert_eq!(other.unwrap().status(), 200, "only the stream was reset");
}
