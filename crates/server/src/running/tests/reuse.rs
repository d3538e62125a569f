//! A client's connection after an answer that did not need the whole request. Clients keep
//! connections in pools and use them for other sandboxes: either it goes on, or the answer says
//! that it does not.

use http_body_util::Full;

use super::*;

/// Takes what comes and never answers.
const NO_ANSWER: &str = "";

/// One whole answer: head and body.
async fn answer(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(socket.read_u8()).await.expect("an answer"));
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or_else(|| panic!("a length in {head:?}"), |(_, length)| length);
    let mut body = vec![0; length.parse().unwrap()];
    within(socket.read_exact(&mut body)).await.unwrap();
    head + &String::from_utf8(body).unwrap()
}

async fn keeps_its_word(mut client: TcpStream, answered: &str, what: &str) {
    if answered.to_lowercase().contains("connection: close") {
        assert_eq!(within(client.read(&mut [0])).await.unwrap_or(0), 0);
        return;
    }
    let next = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(next.as_bytes()).await.unwrap();
    let next = answer(&mut client).await;
    assert!(next.ends_with("healthy"), "{what}: {next}");
}

async fn send(world: &World, host: &str, path: &str, rest: &str) -> TcpStream {
    let mut client = TcpStream::connect(world.addresses.http).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{rest}");
    client.write_all(head.as_bytes()).await.unwrap();
    client
}

/// Bodies in two parts: what comes with the head, and what comes after the answer.
const BODIES: [(&str, &str); 7] = [
    ("\r\n", ""),
    ("Content-Length: 4\r\n\r\nbody", ""),
    ("Content-Length: 8\r\n\r\nbody", "body"),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        "",
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n4\r\nbody\r\n0\r\n\r\n",
        "",
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
        "4\r\nbody\r\n0\r\n\r\n",
    ),
    ("Expect: 100-continue\r\nContent-Length: 4\r\n\r\n", ""),
];

#[tokio::test]
async fn an_answer_before_the_body_was_read_keeps_the_connection_or_says_so() {
    let world = world();
    let hosts = [
        ("8080-inobody.sbx.localhost".to_owned(), "/", "502"),
        ("x-inobody.sbx.localhost".to_owned(), "/", "400"),
        (format!("49983-{ID}.sbx.localhost"), "/init", "404"),
        ("localhost".to_owned(), "/nothing", "404"),
        ("localhost".to_owned(), "/refuses", "401"),
    ];
    for (host, path, status) in &hosts {
        for (first, later) in BODIES {
            let what = format!("{host}{path} {first:?}");
            let mut client = send(&world, host, path, first).await;
            let answered = answer(&mut client).await;
            assert_eq!(&answered[9..12], *status, "{what}: {answered}");
            client.write_all(later.as_bytes()).await.unwrap();
            keeps_its_word(client, &answered, &what).await;
        }
    }
}

#[tokio::test]
async fn a_sandbox_that_dies_before_it_answers_leaves_the_connection_usable() {
    for (first, later) in BODIES {
        let world = world();
        let mut inside = world.inside(8080, NO_ANSWER).await;
        let host = format!("8080-{ID}.sbx.localhost");
        let mut client = send(&world, &host, "/", first).await;
        within(inside.recv()).await.unwrap();
        world.kill();
        if first.contains("Expect") {
            let mut proceed = [0; 25];
            within(client.read_exact(&mut proceed)).await.unwrap();
        }
        let answered = answer(&mut client).await;
        assert_eq!(&answered[9..12], "502", "{first:?}: {answered}");
        client.write_all(later.as_bytes()).await.unwrap();
        if first.contains("Expect") {
            client.write_all(b"body").await.unwrap();
        }
        keeps_its_word(client, &answered, first).await;
    }
}

#[tokio::test]
async fn a_server_inside_that_answers_early_leaves_the_connection_usable() {
    let world = world();
    world.inside(8080, OK).await;
    let host = format!("8080-{ID}.sbx.localhost");
    for (first, later) in &BODIES[..6] {
        let mut client = send(&world, &host, "/", first).await;
        let answered = answer(&mut client).await;
        client.write_all(later.as_bytes()).await.unwrap();
        keeps_its_word(client, &answered, first).await;
    }
}

#[tokio::test]
async fn a_body_without_end_does_not_hold_a_refused_connection_forever() {
    let world = world();
    let first = "Content-Length: 999999999\r\n\r\n";
    let mut client = send(&world, "8080-inobody.sbx.localhost", "/", first).await;
    answer(&mut client).await;
    let more = vec![b'x'; 1 << 20];
    let mut sent: u64 = 0;
    while within(client.write_all(&more)).await.is_ok() {
        sent += more.len() as u64;
        assert!(sent < 256 << 20, "it reads on and on");
    }
}

/// The clock stands still: only what it costs ends it.
#[tokio::test(start_paused = true)]
async fn a_refused_body_in_tiny_pieces_is_given_up_for_their_number() {
    let world = world();
    let first = "Transfer-Encoding: chunked\r\n\r\n";
    let mut client = send(&world, "8080-inobody.sbx.localhost", "/", first).await;
    answer(&mut client).await;
    let pieces = "1\r\nx\r\n".repeat(10_000);
    let mut sent: u64 = 0;
    while client.write_all(pieces.as_bytes()).await.is_ok() {
        sent += pieces.len() as u64;
        assert!(sent < 32 << 20, "it reads on and on");
    }
}

#[tokio::test]
async fn over_http2_a_refused_upload_costs_its_stream_only() {
    let world = world();
    let stream = world.tls("api.sbx.localhost", &[b"h2"]).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for _ in 0..8 {
        let big = Full::new(Bytes::from(vec![0; 3 << 20]));
        let request = Request::post("https://8080-inobody.sbx.localhost/")
            .body(big)
            .unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 502);
        within(response.into_body().collect()).await.unwrap();
    }
    let request = Request::get("https://api.sbx.localhost/health")
        .body(Full::default())
        .unwrap();
    let response = within(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
}
