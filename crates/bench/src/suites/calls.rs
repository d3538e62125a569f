//! Timed calls that several suites use.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use soulbox_client::{
    Envd,
    envd::process::{Command, Event},
};

use super::{LIFE_SECONDS, TEMPLATE, Target, TestSandbox};
use crate::{Contender, Failure};

/// What the sandboxes print, as the alternatives do.
const WORD: &str = "hello";

/// How long it took, if it succeeded.
pub(super) async fn timed<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<(Duration, T), Failure> {
    let begun = Instant::now();
    let done = work.await?;
    Ok((begun.elapsed(), done))
}

/// A sandbox, and how long it took until a command in it was heard.
pub(super) async fn first_output(target: &Target) -> Result<(Duration, TestSandbox), Failure> {
    let begun = Instant::now();
    let sandbox = target.make(TEMPLATE, LIFE_SECONDS).await?;
    match echo(&sandbox.envd).await {
        Ok(arrived) => Ok((arrived.duration_since(begun), sandbox)),
        Err(failure) => {
            // The failure is what matters; the sweep gets what stays.
            target.end(&sandbox).await.ok();
            Err(failure)
        }
    }
}

/// Runs `echo` and gives the moment at which its output arrived.
pub(super) async fn echo(envd: &Envd) -> Result<Instant, Failure> {
    let command = Command {
        program: "echo".to_owned(),
        arguments: vec![WORD.to_owned()],
        ..Command::default()
    };
    let mut process = envd.start(&command).await?;
    let (mut arrived, mut output) = (None, Vec::new());
    while let Some(event) = process.next().await? {
        if let Event::Stdout(bytes) = event {
            arrived.get_or_insert_with(Instant::now);
            output.extend_from_slice(&bytes);
        }
    }
    match arrived {
        Some(arrived) if output.trim_ascii_end() == WORD.as_bytes() => Ok(arrived),
        _ => Err(Failure(format!(
            "echo printed {:?}",
            String::from_utf8_lossy(&output)
        ))),
    }
}

/// Runs `true`; how long it took until its end was heard.
pub(super) async fn execute(envd: &Envd) -> Result<Duration, Failure> {
    let command = Command {
        program: "true".to_owned(),
        ..Command::default()
    };
    let begun = Instant::now();
    let mut process = envd.start(&command).await?;
    let mut ended = None;
    while let Some(event) = process.next().await? {
        if let Event::End(end) = event {
            ended = Some((begun.elapsed(), end.shell_status()));
        }
    }
    match ended {
        Some((took, 0)) => Ok(took),
        Some((_, status)) => Err(Failure(format!("`true` ended with {status}"))),
        None => Err(Failure::new("the end was not reported")),
    }
}

/// From nothing to the first output, one sandbox per round.
#[derive(Debug)]
pub(super) struct FirstOutput {
    pub(super) target: Target,
    pub(super) name: &'static str,
    pub(super) method: &'static str,
}

#[async_trait]
impl Contender for FirstOutput {
    fn name(&self) -> &str {
        self.name
    }

    fn method(&self) -> &str {
        self.method
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        self.target.wait_until_settled().await?;
        let (took, sandbox) = first_output(&self.target).await?;
        self.target.end(&sandbox).await?;
        Ok(took)
    }
}
