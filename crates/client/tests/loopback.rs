//! The client against a real HTTP server on loopback that speaks E2B's wire formats.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking; the lint knows only #[test] functions"
)]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use soulbox_client::{
    Client, Config, Envd, Error,
    config::Flags,
    envd::{
        input::InputKind,
        process::{Command, Event},
    },
    model::CreateSandbox,
};
use soulbox_envd_protocol::frames;
use soulbox_types::Secret;
use tokio::net::TcpListener;

type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A request as the server saw it.
#[derive(Clone)]
struct Seen {
    /// Which of the connections, in the order they were made.
    connection: usize,
    method: Method,
    target: String,
    headers: http::HeaderMap,
    body: Bytes,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    fn last(&self) -> Seen {
        self.0
            .lock()
            .unwrap()
            .last()
            .cloned()
            .expect("a request came")
    }
}

/// Answers each request by `answer`; returns the client and what was asked.
async fn serve(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (Client, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Log::default();
    let (answer, seen) = (Arc::new(answer), log.clone());
    tokio::spawn(async move {
        for connection in 1.. {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let (answer, log) = (answer.clone(), seen.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (answer, log) = (answer.clone(), log.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let seen = Seen {
                        connection,
                        method: head.method,
                        target: head.uri.to_string(),
                        headers: head.headers,
                        body: body.collect().await.unwrap().to_bytes(),
                    };
                    let reply = answer(&seen);
                    log.0.lock().unwrap().push(seen);
                    Ok::<_, Infallible>(reply)
                }
            });
            tokio::spawn(async move {
                // A client that goes away in the middle is part of some tests.
                auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            });
        }
    });
    (client_of(&url), log)
}

fn client_of(url: &str) -> Client {
    let flags = Flags {
        api_url: Some(url.to_owned()),
        api_key: Some(Secret::new("e2b_test")),
        data_dir: None,
        context: None,
    };
    Client::new(&Config::resolve(&flags, |_| None).unwrap(), None)
}

fn envd(client: &Client) -> Envd {
    client
        .envd("iabc", Some(Secret::new("token")))
        .as_user(Some("root".to_owned()))
}

fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

fn frames(messages: &[Value], end: &Value) -> Reply {
    let mut wire = Vec::new();
    for message in messages {
        wire.extend_from_slice(&frames::encode(message.to_string().as_bytes()).unwrap());
    }
    let end = end.to_string();
    wire.push(2);
    wire.extend_from_slice(&u32::try_from(end.len()).unwrap().to_be_bytes());
    wire.extend_from_slice(end.as_bytes());
    reply(200, wire)
}

fn command() -> Command {
    Command {
        program: "echo".to_owned(),
        arguments: vec!["hi".to_owned()],
        ..Command::default()
    }
}

#[tokio::test]
async fn create_sends_the_key_and_only_what_was_asked_for() {
    let (client, log) = serve(|_| {
        reply(
            201,
            r#"{"sandboxID":"iabc","templateID":"t","clientID":"6532622b","envdVersion":"0.6.13",
                "envdAccessToken":"secret","domain":null}"#,
        )
    })
    .await;
    let request = CreateSandbox {
        template: "base".to_owned(),
        timeout: Some(60),
        allow_internet_access: Some(false),
        ..CreateSandbox::default()
    };
    let sandbox = client.create(&request).await.unwrap();
    assert_eq!(sandbox.id, "iabc");
    assert!(sandbox.envd_access_token.unwrap().matches("secret"));

    let seen = log.last();
    assert_eq!(
        (seen.method, seen.target.as_str()),
        (Method::POST, "/v2/sandboxes")
    );
    assert_eq!(seen.headers["x-api-key"], "e2b_test");
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(
        body,
        json!({"templateID": "base", "timeout": 60, "allow_internet_access": false})
    );
}

#[tokio::test]
async fn listing_follows_every_page() {
    let row = |id: &str| {
        json!([{"sandboxID": id, "templateID": "t", "clientID": "c", "startedAt": "2026-01-01T00:00:00Z",
            "endAt": "2026-01-01T00:05:00Z", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 10240,
            "state": "running", "envdVersion": "0.6.13"}])
        .to_string()
    };
    let (client, log) = serve(move |seen| {
        if seen.target.contains("nextToken=a%2Bb") {
            return reply(200, row("itwo"));
        }
        let mut first = reply(200, row("ione"));
        first
            .headers_mut()
            .insert("x-next-token", "a+b".parse().unwrap());
        first
    })
    .await;
    let ids: Vec<_> = client
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids, ["ione", "itwo"]);
    assert_eq!(log.0.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn refusals_keep_the_servers_code_and_words() {
    let (client, _) = serve(|_| {
        reply(
            422,
            r#"{"code":422,"message":"same key","error_code":"idempotency_request_mismatch"}"#,
        )
    })
    .await;
    let Err(Error::Api(api)) = client.sandbox("iabc").await else {
        panic!("refused")
    };
    assert_eq!(
        (api.status, api.code),
        (StatusCode::UNPROCESSABLE_ENTITY, 422)
    );
    assert_eq!(api.message, "same key");
    assert_eq!(
        api.error_code.as_deref(),
        Some("idempotency_request_mismatch")
    );
}

#[tokio::test]
async fn killing_what_is_gone_is_no_error() {
    let (client, _) = serve(|_| reply(404, r#"{"code":404,"message":"no"}"#)).await;
    assert!(!client.kill("iabc").await.unwrap());
}

#[tokio::test]
async fn a_closed_port_asks_whether_the_server_runs() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client_of(&url).list().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }));
    assert!(error.hint().unwrap().contains("soulbox serve"));
}

#[tokio::test]
async fn a_process_streams_its_output_and_end() {
    let (client, log) = serve(|_| {
        frames(
            &[
                json!({"event": {"start": {"pid": 7}}}),
                json!({"event": {"data": {"stdout": STANDARD.encode(b"out\xff")}}}),
                json!({"event": {"keepalive": {}}}),
                json!({"event": {"data": {"stderr": STANDARD.encode("err")}}}),
                json!({"event": {"end": {"exitCode": 3, "exited": true, "status": "exit status 3"}}}),
            ],
            &json!({}),
        )
    })
    .await;
    let mut process = envd(&client).start(&command()).await.unwrap();
    assert_eq!(process.pid(), 7);
    let mut events = Vec::new();
    while let Some(event) = process.next().await.unwrap() {
        events.push(event);
    }
    assert_eq!(events[0], Event::Stdout(Bytes::from_static(b"out\xff")));
    assert_eq!(events[1], Event::Stderr(Bytes::from_static(b"err")));
    let Event::End(end) = &events[2] else {
        panic!("an end")
    };
    assert_eq!(end.shell_status(), 3);

    let headers = log.last().headers;
    assert_eq!(headers["e2b-sandbox-id"], "iabc");
    assert_eq!(headers["e2b-sandbox-port"], "49983");
    assert_eq!(headers["x-access-token"], "token");
    assert_eq!(
        headers["authorization"],
        format!("Basic {}", STANDARD.encode("root:"))
    );
    assert!(!headers.contains_key("connect-timeout-ms"));
}

#[tokio::test]
async fn attaching_asks_for_the_output_so_far() {
    let (client, log) =
        serve(|_| frames(&[json!({"event": {"start": {"pid": 7}}})], &json!({}))).await;
    envd(&client).attach(7, true).await.unwrap();
    assert_eq!(log.last().headers["soulbox-replay"], "true");
}

#[tokio::test]
async fn an_error_in_the_last_frame_is_the_result() {
    let (client, _) = serve(|_| {
        frames(
            &[],
            &json!({"error": {"code": "invalid_argument", "message": "error starting process"}}),
        )
    })
    .await;
    let Err(Error::Rpc(rpc)) = envd(&client).start(&command()).await else {
        panic!("refused")
    };
    assert_eq!(
        (rpc.code.as_str(), rpc.message.as_str()),
        ("invalid_argument", "error starting process")
    );
}

#[tokio::test]
async fn a_stream_that_was_read_to_its_end_gives_its_connection_back() {
    let start = json!({ "event": { "start": { "pid": 7 } } });
    let (client, log) = serve(move |_| frames(std::slice::from_ref(&start), &json!({}))).await;
    for _ in 0..3 {
        let mut process = envd(&client).start(&command()).await.unwrap();
        assert_eq!(process.next().await.unwrap(), None);
    }
    assert_eq!(log.last().connection, 1);
}

#[tokio::test]
async fn copies_succeed_and_fail_each_on_its_own() {
    let (client, log) = serve(|_| {
        let made = json!({ "sandboxID": "i2", "templateID": "t", "envdVersion": "1" });
        let refused = json!({ "code": 503, "message": "full", "error_code": "no_capacity" });
        let answer = json!([{ "sandbox": made }, { "error": refused }]);
        reply(201, answer.to_string())
    })
    .await;
    let copies = client.fork("i1", 2, 60).await.unwrap();
    assert_eq!(copies[0].as_ref().unwrap().id, "i2");
    let Err(Error::Api(refusal)) = &copies[1] else {
        panic!("{copies:?}");
    };
    assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refusal.error_code.as_deref(), Some("no_capacity"));
    let asked = log.last();
    assert_eq!(asked.target, "/sandboxes/i1/fork");
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(body, json!({ "count": 2, "timeout": 60 }));
}

#[tokio::test]
async fn a_stream_without_its_last_frame_was_cut() {
    let (client, _) = serve(|_| {
        let start = json!({"event": {"start": {"pid": 7}}}).to_string();
        reply(200, frames::encode(start.as_bytes()).unwrap())
    })
    .await;
    let mut process = envd(&client).start(&command()).await.unwrap();
    assert!(matches!(process.next().await, Err(Error::Cut { .. })));
    assert!(matches!(process.next().await, Ok(None)));
}

#[tokio::test]
async fn a_hostile_frame_length_is_refused() {
    let (client, _) = serve(|_| reply(200, vec![0, 0xff, 0xff, 0xff, 0xff, 0])).await;
    assert!(matches!(
        envd(&client).start(&command()).await,
        Err(Error::Protocol { .. })
    ));
}

#[tokio::test]
async fn an_endless_answer_is_cut_at_the_limit() {
    let (client, _) = serve(|_| {
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let body = StreamBody::new(stream::repeat_with(move || Ok(Frame::data(chunk.clone()))));
        Response::new(body.boxed_unsync())
    })
    .await;
    assert!(matches!(client.list().await, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn a_dead_sandbox_is_told_from_a_broken_server() {
    let (client, _) = serve(|_| {
        reply(
            502,
            r#"{"sandboxId":"iabc","message":"The sandbox was not found","code":502}"#,
        )
    })
    .await;
    let error = envd(&client).processes().await.unwrap_err();
    assert!(matches!(error, Error::SandboxGone { .. }), "{error:?}");
}

#[tokio::test]
async fn input_keeps_its_order_in_one_request() {
    let (client, log) = serve(|_| frames(&[json!({})], &json!({}))).await;
    let input = envd(&client).input(7, InputKind::Stdin);
    for chunk in ["one", "two"] {
        assert!(input.send(Bytes::from(chunk)).await);
    }
    input.finish().await.unwrap();

    let seen = log.last();
    assert_eq!(seen.target, "/process.Process/StreamInput");
    let mut decoder = frames::Decoder::new(1 << 20);
    decoder.feed(&seen.body);
    let mut sent = Vec::new();
    while let Some(frames::Frame::Message(message)) = decoder.take_frame().unwrap() {
        sent.push(serde_json::from_slice::<Value>(&message).unwrap());
    }
    assert_eq!(
        sent,
        [
            json!({"start": {"process": {"pid": 7}}}),
            json!({"data": {"input": {"stdin": STANDARD.encode("one")}}}),
            json!({"data": {"input": {"stdin": STANDARD.encode("two")}}}),
        ]
    );
}

#[tokio::test]
async fn files_go_up_and_come_down_whole() {
    let (client, log) = serve(|seen| match seen.method {
        Method::POST => reply(200, r#"[{"path":"/tmp/a b","name":"a b","type":"file"}]"#),
        _ => reply(200, "content"),
    })
    .await;
    let envd = envd(&client);
    let chunks = || stream::iter(["con", "tent"].map(|chunk| Ok(Bytes::from(chunk))));
    envd.upload("/tmp/a b", None, chunks()).await.unwrap();
    let seen = log.last();
    assert_eq!(seen.body, "content");
    assert_eq!(seen.target, "/files?path=%2Ftmp%2Fa%20b&username=root");
    assert_eq!(seen.headers["transfer-encoding"], "chunked");

    envd.upload("/tmp/a b", Some(7), chunks()).await.unwrap();
    let seen = log.last();
    assert_eq!(seen.body, "content");
    assert_eq!(seen.headers["content-length"], "7");
    assert!(!seen.headers.contains_key("transfer-encoding"));

    let mut download = envd.download("/tmp/a b").await.unwrap();
    assert_eq!(download.length, Some(7));
    let mut content = Vec::new();
    while let Some(chunk) = download.chunk().await.unwrap() {
        content.extend_from_slice(&chunk);
    }
    assert_eq!(content, b"content");
}

#[tokio::test]
async fn a_source_that_cannot_be_read_is_not_blamed_on_the_server() {
    let (client, _) = serve(|_| reply(200, "[]")).await;
    let broken = stream::iter([
        Ok(Bytes::from("a")),
        Err(std::io::Error::other("disk on fire")),
    ]);
    let error = envd(&client)
        .upload("/tmp/a", None, broken)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Source(_)), "{error:?}");
}

#[tokio::test]
async fn sizes_are_read_as_text_or_number() {
    let (client, _) = serve(|_| {
        reply(
            200,
            r#"{"entry":{"name":"a","type":"FILE_TYPE_FILE","path":"/a","size":"12","mode":420}}"#,
        )
    })
    .await;
    let entry = envd(&client).stat("/a").await.unwrap();
    assert_eq!((entry.size, entry.mode), (12, 0o644));
}

#[tokio::test]
async fn a_flood_of_interim_answers_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        drop(socket.read(&mut [0; 4096]).await);
        let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
        while socket.write_all(many.as_bytes()).await.is_ok() {}
    });
    let client = client_of(&url);
    let listed = tokio::time::timeout(std::time::Duration::from_secs(10), client.api_keys());
    let error = listed.await.expect("in time").unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
}
