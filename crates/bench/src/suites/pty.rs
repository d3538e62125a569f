//! One key stroke on a terminal, to its echo.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use soulbox_client::{
    Envd,
    envd::{
        input::{Input, InputKind},
        process::{Command, Event, ProcessStream, PtySize},
    },
};
use tokio::time::timeout;

use super::{Bench, Contenders, LONG_LIFE_SECONDS, TEMPLATE, TestSandbox, group};
use crate::{Contender, Error, Failure, Suite, report::Group};

const CALLS: &str = "one request per key";
const STREAM: &str = "one request for all keys";
const LIMIT: Duration = Duration::from_secs(20);
/// Without lines to wait for, whatever is typed is read at once, and the terminal echoes.
const SCRIPT: &str = "stty -icanon echo && echo ready && exec cat > /dev/null";

enum Keys {
    Calls,
    Stream(Input),
}

struct Terminal {
    envd: Envd,
    process: ProcessStream,
    keys: Keys,
    typed: usize,
}

impl Terminal {
    async fn open(sandbox: &TestSandbox, streaming: bool) -> Result<Self, Failure> {
        let command = Command {
            program: "/bin/sh".to_owned(),
            arguments: vec!["-c".to_owned(), SCRIPT.to_owned()],
            pty: Some(PtySize { cols: 80, rows: 24 }),
            ..Command::default()
        };
        let process = sandbox.envd.start(&command).await?;
        let keys = if streaming {
            Keys::Stream(sandbox.envd.input(process.pid(), InputKind::Pty))
        } else {
            Keys::Calls
        };
        let mut terminal = Self {
            envd: sandbox.envd.clone(),
            process,
            keys,
            typed: 0,
        };
        read_until(&mut terminal.process, b"ready\r\n").await?;
        Ok(terminal)
    }
}

/// Reads until these bytes have come.
async fn read_until(process: &mut ProcessStream, wanted: &[u8]) -> Result<Instant, Failure> {
    let mut seen = Vec::new();
    let reading = async {
        while let Some(event) = process.next().await? {
            match event {
                Event::Pty(bytes) => seen.extend_from_slice(&bytes),
                Event::End(end) => {
                    return Err(Failure(format!("the terminal ended: {}", end.status)));
                }
                Event::Stdout(_) | Event::Stderr(_) => {}
            }
            if seen.windows(wanted.len()).any(|part| part == wanted) {
                return Ok(Instant::now());
            }
        }
        Err(Failure::new("the terminal ended"))
    };
    timeout(LIMIT, reading)
        .await
        .map_err(|_| Failure::new("there was no echo within 20 s"))?
}

async fn press(envd: &Envd, pid: u32, keys: &Keys, key: u8) -> Result<(), Failure> {
    match keys {
        Keys::Calls => Ok(envd.send_pty(pid, &[key]).await?),
        Keys::Stream(input) => {
            if input.send(Bytes::copy_from_slice(&[key])).await {
                Ok(())
            } else {
                Err(Failure::new("the input is closed"))
            }
        }
    }
}

#[async_trait]
impl Contender for Terminal {
    fn name(&self) -> &str {
        match self.keys {
            Keys::Calls => CALLS,
            Keys::Stream(_) => STREAM,
        }
    }

    fn method(&self) -> &'static str {
        match self.keys {
            Keys::Calls => "process.Process/SendInput, as the SDKs do",
            Keys::Stream(_) => "process.Process/StreamInput, as `soulbox shell` does",
        }
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
        let key = LETTERS[self.typed % LETTERS.len()];
        self.typed += 1;
        let (pid, wanted) = (self.process.pid(), std::slice::from_ref(&key));
        let begun = Instant::now();
        // The echo may be here before the request is answered; it is what counts.
        let (pressed, echoed) = tokio::join!(
            press(&self.envd, pid, &self.keys, key),
            read_until(&mut self.process, wanted)
        );
        pressed?;
        Ok(echoed?.duration_since(begun))
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.plain(bench.progress).await?;
    let sandbox = match &found {
        Ok(target) => target.make(TEMPLATE, LONG_LIFE_SECONDS).await,
        Err(failure) => Err(failure.clone()),
    };
    let mut contenders = Contenders::default();
    for (name, streaming) in [(CALLS, false), (STREAM, true)] {
        let terminal = match &sandbox {
            Ok(sandbox) => Terminal::open(sandbox, streaming).await,
            Err(failure) => Err(failure.clone()),
        };
        contenders.add(
            name,
            terminal.map(|terminal| -> Box<dyn Contender> { Box::new(terminal) }),
        );
    }
    let rounds = bench.options.rounds;
    let mut rows = bench
        .rows(Suite::Pty, "key strokes", &mut contenders.available, rounds)
        .await;
    rows.append(&mut contenders.absent);
    drop(contenders);
    if let (Ok(target), Ok(sandbox)) = (&found, &sandbox) {
        // What cannot be ended is left to the sweep.
        target.end(sandbox).await.ok();
    }
    Ok(vec![group(
        "pty",
        "One key stroke on a terminal, to its echo",
        "A terminal in a running sandbox; one key is sent, and the time is taken when its echo has \
         arrived on the stream of output.",
        rows,
    )])
}
