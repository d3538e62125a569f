//! Something inside the sandbox answers in envd's place, badly.

#![expect(clippy::unwrap_used, reason = "a failing helper should fail its test")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use soulbox_envd_client::{
    CommandSpec, CopyRequest, Dial, EnvdClient, Error, InitUpdate, ProcessExit, Result,
};
use soulbox_runtime::DynStream;
use soulbox_types::{SandboxId, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const LIMIT: Duration = Duration::from_mins(10);

/// Answers every connection with the same bytes, once something was asked.
struct Impostor {
    answer: Vec<u8>,
    then: Then,
    asked: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    Close,
    SayNothing,
    /// The same again, for ever.
    Repeat,
}

#[async_trait]
impl Dial for Impostor {
    async fn dial(&self, port: u16) -> soulbox_runtime::Result<DynStream> {
        assert_eq!(port, soulbox_types::ENVD_PORT);
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = duplex(64 << 10);
        tokio::spawn(answer(theirs, self.answer.clone(), self.then));
        Ok(Box::new(ours))
    }
}

async fn answer(mut stream: DuplexStream, answer: Vec<u8>, then: Then) {
    let mut asked = [0; 1024];
    if stream.read(&mut asked).await.unwrap_or(0) == 0 {
        return;
    }
    let _client_gone = stream.write_all(&answer).await;
    match then {
        Then::Close => {}
        Then::SayNothing => while stream.read(&mut asked).await.is_ok_and(|read| read > 0) {},
        Then::Repeat => while stream.write_all(&answer).await.is_ok() {},
    }
}

fn guest(answer: impl Into<Vec<u8>>, then: Then) -> (EnvdClient, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let dial = Impostor {
        answer: answer.into(),
        then,
        asked: asked.clone(),
    };
    let guest = EnvdClient::with_tokens(Arc::new(dial), Secret::new("node"), None);
    (guest, asked)
}

/// A successful stream, whose length is where the connection ends.
fn stream(frames: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\n\r\n";
    [head.as_bytes(), frames].concat()
}

fn frame(flags: u8, payload: &str) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[flags], length.as_slice(), payload.as_bytes()].concat()
}

fn started() -> Vec<u8> {
    frame(0, r#"{"event":{"start":{"pid":7}}}"#)
}

async fn run(guest: &EnvdClient) -> Result<ProcessExit> {
    let command = CommandSpec::login_shell("true", "user");
    guest.run(&command, &mut |_, _| {}, LIMIT).await
}

#[tokio::test(start_paused = true)]
async fn silence_is_not_waited_for_without_end() {
    for said in [Vec::new(), stream(b""), stream(&started())] {
        let (guest, _) = guest(said, Then::SayNothing);
        assert!(matches!(run(&guest).await, Err(Error::TooSlow { .. })));
        let init = guest.init(&InitUpdate::default()).await;
        // A stream is no answer to /init, but its head is: the body is not waited for either.
        assert!(matches!(init, Err(Error::TooSlow { .. })), "{init:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_into_silence_ends() {
    let (guest, _) = guest("", Then::SayNothing);
    let copied = guest
        .copy_in(&CopyRequest::default(), io::Cursor::new("x"))
        .await;
    assert!(matches!(copied, Err(Error::TooSlow { .. })), "{copied:?}");
}

#[tokio::test]
async fn what_is_cut_is_told_as_cut() {
    let cut = [
        stream(b""),
        stream(&started()),
        stream(&started()[..7]),
        b"HTTP/1.1 200 OK\r\nconte".to_vec(),
        Vec::new(),
    ];
    for said in cut {
        let (guest, _) = guest(said, Then::Close);
        let exit = run(&guest).await;
        assert!(matches!(exit, Err(Error::CutOff { .. })), "{exit:?}");
    }
}

#[tokio::test]
async fn nonsense_is_refused() {
    let nonsense = [
        stream(&[0, 0xff, 0xff, 0xff, 0xff]),
        stream(&[9, 0, 0, 0, 0]),
        stream(&frame(0, "[1]")),
        stream(&frame(2, "{}")),
        stream(&frame(2, "no")),
        stream(&frame(0, r#"{"event":{"data":{"stdout":"not base64!"}}}"#)),
    ];
    for said in nonsense {
        let (guest, _) = guest(said, Then::SayNothing);
        let exit = run(&guest).await;
        assert!(matches!(exit, Err(Error::Protocol(_))), "{exit:?}");
    }
    for said in ["SSH-2.0-x\r\n", "HTTP/1.1 999999 x\r\n\r\n"] {
        let (guest, _) = guest(said, Then::SayNothing);
        let exit = run(&guest).await;
        assert!(matches!(exit, Err(Error::CutOff { .. })), "{exit:?}");
    }
}

#[tokio::test]
async fn an_endless_head_or_refusal_is_not_held() {
    let (endless_head, _) = guest(
        "HTTP/1.1 200 OK\r\nx: ".to_owned() + &"y".repeat(999),
        Then::Repeat,
    );
    assert!(matches!(
        run(&endless_head).await,
        Err(Error::CutOff { .. })
    ));
    let (endless_refusal, _) = guest("HTTP/1.1 500 x\r\n\r\nmore", Then::Repeat);
    assert!(matches!(
        run(&endless_refusal).await,
        Err(Error::CutOff { .. })
    ));
}

#[tokio::test]
async fn output_is_bounded_by_time_alone_and_never_kept() {
    let output = frame(0, r#"{"event":{"data":{"stdout":"eHh4eHh4"}}}"#);
    let (guest, asked) = guest(stream(&output), Then::SayNothing);
    let mut seen = 0;
    let command = CommandSpec::login_shell("yes", "user");
    let mut count = |_, bytes: &[u8]| seen += bytes.len();
    let run = guest.run(&command, &mut count, LIMIT);
    let dropped = tokio::time::timeout(Duration::from_millis(200), run).await;
    assert!(dropped.is_err());
    assert_eq!(seen, 6);
    // The process that may be there is looked for, as its start was not heard of.
    while asked.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_refusal_at_the_end_of_a_stream_keeps_its_code() {
    let end = r#"{"error":{"code":"unauthenticated","message":"invalid username: 'x'"}}"#;
    let (guest, asked) = guest(stream(&frame(2, end)), Then::SayNothing);
    let error = run(&guest).await.unwrap_err();
    assert_eq!(error.to_string(), "unauthenticated: invalid username: 'x'");
    // Nothing was started, so nothing is to be ended.
    tokio::task::yield_now().await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_tree_that_is_cut_ends_with_an_error() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let (guest, _) = guest(format!("{head}3\r\nabc\r\n"), Then::Close);
    let mut tree = guest.tree("/x").await.unwrap();
    let mut read = Vec::new();
    let error = tree.read_to_end(&mut read).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(read, b"abc");
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_stops_ends_with_an_error() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let (guest, _) = guest(format!("{head}3\r\nabc\r\n"), Then::SayNothing);
    let mut tree = guest.tree("/x").await.unwrap();
    let error = tree.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

/// No way in.
struct Unreachable;

#[async_trait]
impl Dial for Unreachable {
    async fn dial(&self, _: u16) -> soulbox_runtime::Result<DynStream> {
        let id = SandboxId::random();
        Err(soulbox_runtime::Error::SandboxNotFound(id))
    }
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_unreachable() {
    let guest = EnvdClient::with_tokens(Arc::new(Unreachable), Secret::new("x"), None);
    assert!(matches!(run(&guest).await, Err(Error::Unreachable(_))));
    let tree = guest.tree("/x").await;
    assert!(matches!(tree, Err(Error::Unreachable(_))));
}

#[test]
fn tokens_are_not_shown() {
    let guest = EnvdClient::with_tokens(
        Arc::new(Unreachable),
        Secret::new("hunter2"),
        Some(Secret::new("hunter2")),
    );
    assert!(!format!("{guest:?}").contains("hunter2"));
}

/// Answers like [`Impostor`] with [`Then::Repeat`], and counts; hangs up after `most` times.
struct Flooder {
    head: Vec<u8>,
    again: Vec<u8>,
    most: usize,
    sent: Arc<AtomicUsize>,
}

#[async_trait]
impl Dial for Flooder {
    async fn dial(&self, _: u16) -> soulbox_runtime::Result<DynStream> {
        let (ours, mut theirs) = duplex(16 << 10);
        let (head, again, most) = (self.head.clone(), self.again.clone(), self.most);
        let sent = self.sent.clone();
        tokio::spawn(async move {
            let asked = theirs.read(&mut [0; 1024]).await;
            if asked.is_err() || theirs.write_all(&head).await.is_err() {
                return;
            }
            for _ in 0..most {
                if theirs.write_all(&again).await.is_err() {
                    return;
                }
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Box::new(ours))
    }
}

fn flooded(head: &[u8], again: &[u8], most: usize) -> (EnvdClient, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let dial = Flooder {
        head: head.to_vec(),
        again: again.to_vec(),
        most,
        sent: sent.clone(),
    };
    let guest = EnvdClient::with_tokens(Arc::new(dial), Secret::new("node"), None);
    (guest, sent)
}

#[tokio::test]
async fn a_flood_of_interim_answers_is_given_up_soon() {
    let (guest, sent) = flooded(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 1_000_000);
    let exit = run(&guest).await;
    assert!(matches!(exit, Err(Error::Protocol(_))), "{exit:?}");
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 3_000, "{sent} were taken");
}

/// Each says that the command still runs.
#[tokio::test(start_paused = true)]
async fn messages_that_say_nothing_cost_no_more_work_than_time_allows() {
    let nothing = frame(0, r#"{"event":{}}"#);
    let (guest, sent) = flooded(&stream(&started()), &nothing, 1_000_000);
    let command = CommandSpec::login_shell("true", "user");
    let limit = Duration::from_secs(1);
    let exit = guest.run(&command, &mut |_, _| {}, limit).await;
    assert!(matches!(exit, Err(Error::TooSlow { .. })), "{exit:?}");
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 200_000, "{sent} were taken");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_or_a_tree_in_tiny_chunks_costs_no_more_work_than_time_allows() {
    let head = "HTTP/1.1 500 x\r\ntransfer-encoding: chunked\r\n\r\n";
    let (guest, _) = flooded(head.as_bytes(), b"1\r\nx\r\n", 100_000);
    let begun = tokio::time::Instant::now();
    let refused = run(&guest).await;
    assert!(matches!(refused, Err(Error::CutOff { .. })), "{refused:?}");
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let (guest, _) = flooded(head.as_bytes(), b"1\r\nx\r\n", 100_000);
    let mut read = Vec::new();
    let tree = guest.tree("/x").await.unwrap().read_to_end(&mut read).await;
    assert!(tree.is_err());
    assert_eq!(read.len(), 100_000);
    // Four times the burst in each.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(7), "{took:?}");
}
