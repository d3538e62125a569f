//! What answers in the sandbox says nothing, or too little.
#![expect(clippy::unwrap_used, reason = "a failing helper should fail its test")]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use soulbox_code_runner::{Error, Execution, Executor};
use soulbox_envd_client::{Dial, EnvdClient};
use soulbox_runtime::DynStream;
use soulbox_types::Secret;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::Instant,
};

/// Says this to everybody who asks, and then nothing.
struct Mute(Vec<u8>);

#[async_trait]
impl Dial for Mute {
    async fn dial(&self, _: u16) -> soulbox_runtime::Result<DynStream> {
        let (ours, mut theirs) = duplex(64 << 10);
        let said = self.0.clone();
        tokio::spawn(async move {
            let mut asked = [0; 1024];
            if theirs.read(&mut asked).await.is_ok_and(|read| read > 0)
                && theirs.write_all(&said).await.is_ok()
            {
                while theirs.read(&mut asked).await.is_ok_and(|read| read > 0) {}
            }
        });
        Ok(Box::new(ours))
    }
}

fn execution() -> Execution {
    serde_json::from_str(r#"{"language": "python", "code": "print(1)"}"#).unwrap()
}

fn executor(said: &[&[u8]]) -> Executor {
    let dial = Mute(said.concat());
    let envd = EnvdClient::with_tokens(Arc::new(dial), Secret::new("node"), None);
    Executor::new(envd)
}

fn frame(payload: &str) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), payload.as_bytes()].concat()
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_does_not_answer_is_said_to_be_that_soon() {
    for said in [&[][..], &[HEAD]] {
        let begun = Instant::now();
        let error = executor(said).execute(&execution()).await.unwrap_err();
        assert!(matches!(error, Error::Mute { .. }), "{error}");
        assert!(
            begun.elapsed() <= Duration::from_secs(15),
            "{:?}",
            begun.elapsed()
        );
        let error = executor(said).languages(None).await.unwrap_err();
        assert!(matches!(error, Error::Mute { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_does_not_end_does_not_say_that_the_language_is_missing() {
    let started = frame(r#"{"event":{"start":{"pid":7}}}"#);
    let executor = executor(&[HEAD, &started]);
    let begun = Instant::now();
    let error = executor.execute(&execution()).await.unwrap_err();
    assert!(matches!(error, Error::Mute { .. }), "{error}");
    assert!(
        begun.elapsed() <= Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    let error = executor.languages(None).await.unwrap_err();
    assert!(matches!(error, Error::Mute { .. }), "{error}");
}

/// It knows its languages, and is then silent when the code is to be put in place.
#[tokio::test(start_paused = true)]
async fn code_that_cannot_be_put_in_place_is_not_waited_for_for_minutes() {
    let found = [
        frame(r#"{"event":{"start":{"pid":7}}}"#),
        frame(r#"{"event":{"data":{"stdout":"MTAwMCAxMDAwCg=="}}}"#),
        frame(r#"{"event":{"end":{"exitCode":64,"exited":true,"status":"exit status 64"}}}"#),
    ];
    let executor = executor(&[HEAD, &found.concat()]);
    let begun = Instant::now();
    let error = executor.execute(&execution()).await.unwrap_err();
    assert!(matches!(error, Error::Mute { .. }), "{error}");
    assert!(
        begun.elapsed() <= Duration::from_mins(1),
        "{:?}",
        begun.elapsed()
    );
}
